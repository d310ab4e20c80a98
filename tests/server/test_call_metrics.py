from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from tests.server.access.secured import bearer, token_in
from tests.server.running import Running, embed_request, picture, refusal, run_server
from tests.server.watched import WatchedEncoder, until
from tests.support.pictures import COLOURS
from tests.support.scraped import Scraped
from twinlens.v1 import (
    collection_operations_pb2,
    collection_pb2,
    content_pb2,
    embedding_pb2,
    embedding_pb2_grpc,
    search_pb2,
)

EMBEDDING = "twinlens.v1.EmbeddingService"


@pytest.fixture
def encoder() -> WatchedEncoder:
    return WatchedEncoder()


@pytest_asyncio.fixture
async def served(data: Path, encoder: WatchedEncoder) -> AsyncIterator[Running]:
    async with run_server(data, encoder, max_delay_ms=0) as running:
        yield running


def read(served: Running) -> Scraped:
    return Scraped.of(served.app.telemetry.registry)


async def all_ended(served: Running) -> Scraped:
    """What is counted once no call runs any more: a caller hears of the end a moment before it is counted."""

    def none_runs() -> bool:
        now = read(served)
        return now.sum("grpc_server_started_total") == now.sum("grpc_server_handled_total")

    await until(none_runs)
    return read(served)


async def test_every_method_is_at_zero_before_its_first_call(served: Running) -> None:
    now = read(served)
    started = {sample.labels["grpc_method"]: sample for sample in now.samples("grpc_server_started_total")}
    assert {"Embed", "EmbedStream", "Search", "Classify", "UpsertItems", "GetModel", "CheckCollection"} <= set(started)
    assert started["Embed"].labels == {"grpc_type": "unary", "grpc_service": EMBEDDING, "grpc_method": "Embed"}
    kinds = {name: started[name].labels["grpc_type"] for name in ("EmbedStream", "UpsertItems", "CheckCollection")}
    assert kinds == {"EmbedStream": "bidi_stream", "UpsertItems": "client_stream", "CheckCollection": "server_stream"}
    assert now.sum("grpc_server_started_total") == now.sum("grpc_server_handled_total") == 0
    assert len(list(now.samples("grpc_server_handled_total", grpc_code="OK"))) == len(started)


async def test_a_call_is_started_while_it_runs_and_handled_when_it_ended(
    served: Running, encoder: WatchedEncoder
) -> None:
    encoder.hold()
    running = [asyncio.ensure_future(served.embed(f"text {i}")) for i in range(3)]
    await until(lambda: read(served).sum("grpc_server_started_total", grpc_method="Embed") == 3)
    assert read(served).sum("grpc_server_handled_total") == 0
    assert read(served).sum("grpc_server_handling_seconds_count") == 0
    encoder.release()
    await asyncio.gather(*running)
    now = await all_ended(served)
    assert now.sum("grpc_server_handled_total", grpc_method="Embed", grpc_code="OK") == 3
    assert now.sum("grpc_server_handling_seconds_count", grpc_method="Embed") == 3


async def test_calls_are_counted_by_what_they_ended_with(served: Running, encoder: WatchedEncoder) -> None:
    await served.embed("well")
    assert (await refusal(served.embed()))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert (await refusal(served.find(search_pb2.QueryPart(text="x"))))[0] is grpc.StatusCode.NOT_FOUND
    encoder.hold()
    cancelled = served.embedding.Embed(embed_request("cancelled"))
    await encoder.entered()
    cancelled.cancel()
    late = refusal(served.embedding.Embed(embed_request("late"), timeout=0.5))
    assert (await late)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    encoder.release()
    now = await all_ended(served)
    by_code = {
        (sample.labels["grpc_method"], sample.labels["grpc_code"]): sample.value
        for sample in now.samples("grpc_server_handled_total")
        if sample.value
    }
    assert by_code == {
        ("Embed", "OK"): 1,
        ("Embed", "InvalidArgument"): 1,
        ("Embed", "Canceled"): 1,
        ("Embed", "DeadlineExceeded"): 1,
        ("Search", "NotFound"): 1,
    }


async def test_bytes_that_are_no_message_are_a_call_that_was_refused(served: Running) -> None:
    call: Any = served.channel.unary_unary("/twinlens.v1.EmbeddingService/Embed")
    assert (await refusal(call(b"\xff\xff")))[0] is grpc.StatusCode.INVALID_ARGUMENT
    now = await all_ended(served)
    assert now.sum("grpc_server_handled_total", grpc_method="Embed", grpc_code="InvalidArgument") == 1
    assert now.sum("grpc_server_msg_received_total") == 1
    assert now.sum("grpc_server_msg_sent_total") == 0


async def test_messages_of_streams_are_counted_one_by_one(served: Running) -> None:
    await served.create()
    requests = [
        collection_pb2.UpsertItemsRequest(collection="photos", items=[collection_pb2.NewItem(caption=f"caption {i}")])
        for i in range(5)
    ]
    await served.collections.UpsertItems(iter(requests))
    replies = [
        reply
        async for reply in served.operations.ExportItems(
            collection_operations_pb2.ExportItemsRequest(collection="photos", modalities=[content_pb2.MODALITY_TEXT])
        )
    ]
    sent = [embedding_pb2.EmbedStreamRequest(inputs=embed_request("a", "b").inputs) for _ in range(4)]
    answered = [reply async for reply in served.embedding.EmbedStream(iter(sent))]
    now = await all_ended(served)
    assert now.sum("grpc_server_msg_received_total", grpc_method="UpsertItems") == 5
    assert now.sum("grpc_server_msg_sent_total", grpc_method="UpsertItems") == 1
    assert now.sum("grpc_server_msg_received_total", grpc_method="ExportItems") == 1
    assert now.sum("grpc_server_msg_sent_total", grpc_method="ExportItems") == len(replies)
    assert now.sum("grpc_server_msg_received_total", grpc_method="EmbedStream") == 4
    assert now.sum("grpc_server_msg_sent_total", grpc_method="EmbedStream") == len(answered) == 4
    assert now.sum("twinlens_results_total", grpc_method="EmbedStream", outcome="ok") == 8


async def test_results_that_failed_alone_are_counted_with_their_reason_though_the_call_is_ok(served: Running) -> None:
    await served.fill_with_colours()
    await served.embed("a text", picture("red"), b"no picture", "", "   ")
    await served.find(search_pb2.QueryPart(item_id="nobody"))
    await served.upsert(collection_pb2.NewItem(id="empty"), collection_pb2.NewItem(caption="a caption"))
    now = await all_ended(served)
    assert now.sum("grpc_server_handled_total") == now.sum("grpc_server_handled_total", grpc_code="OK")
    assert now.sum("twinlens_results_total", grpc_method="Embed", outcome="ok") == 2
    assert now.sum("twinlens_results_total", grpc_method="Embed", outcome="failed") == 3
    assert now.sum("twinlens_results_total", grpc_method="Search", outcome="failed") == 1
    assert now.sum("twinlens_results_total", grpc_method="UpsertItems", outcome="ok") == len(COLOURS) + 1
    assert now.sum("twinlens_results_total", grpc_method="UpsertItems", outcome="failed") == 1
    failed = {s.labels["reason"]: s.value for s in now.samples("twinlens_failed_items_total")}
    assert failed == {"invalid_image": 1, "invalid_text": 2, "invalid_input": 1, "not_found": 1}
    assert sum(failed.values()) == now.sum("twinlens_results_total", outcome="failed")


async def test_what_came_to_the_towers_is_the_sum_of_what_became_of_it(
    served: Running, encoder: WatchedEncoder
) -> None:
    before = read(served)  # the first canary's
    poisoned = encoder.prepare_text("poison").ids
    encoder.poison.add(poisoned)
    await served.fill_with_colours()
    calls = [served.embed(*(f"text {i} of {j}" for j in range(7)), picture("blue"), b"broken") for i in range(5)]
    await asyncio.gather(*calls, served.embed("poison", "well"))
    encoder.hold()
    gone = served.embedding.Embed(embed_request("gone", picture("red")))
    await encoder.entered()
    gone.cancel()
    await until(lambda: read(served).sum("twinlens_item_outcomes_total", outcome="abandoned") == 2)
    encoder.release()
    now = await all_ended(served)

    def more(name: str, **labels: str) -> float:
        return now.sum(name, **labels) - before.sum(name, **labels)

    embedded = 2 * len(COLOURS) + 5 * 8 + 1
    assert more("twinlens_item_outcomes_total", outcome="embedded") == embedded
    assert more("twinlens_item_outcomes_total", outcome="failed") == 5 + 1
    assert more("twinlens_items_total") == embedded + 6 + 2
    assert more("twinlens_items_total") == more("twinlens_item_outcomes_total")
    assert now.sum("twinlens_items_in_flight") == now.sum("twinlens_queued_items") == 0


async def test_every_run_of_a_tower_is_timed_and_its_items_waited(served: Running) -> None:
    before = read(served)
    await served.fill_with_colours()
    await served.find(search_pb2.QueryPart(text="red"))
    now = await all_ended(served)

    def more(name: str, **labels: str) -> float:
        return now.sum(name, **labels) - before.sum(name, **labels)

    for tower, items in (("image", len(COLOURS)), ("text", len(COLOURS) + 1)):
        assert more("twinlens_batch_items_sum", tower=tower) == items
        assert more("twinlens_queue_seconds_count", tower=tower) == items
        assert more("twinlens_encode_seconds_count", tower=tower) == more("twinlens_batch_items_count", tower=tower)
    assert more("twinlens_search_seconds_count") == 1
    assert more("twinlens_prepare_seconds_count") > 0


async def test_each_call_is_one_line_of_the_access_log_without_what_it_carried(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "twinlens.access")
    async with run_server(data, WatchedEncoder(), log_format="json") as served:
        sent = embed_request("a secret", b"broken")
        await served.embedding.Embed(sent, metadata=(("x-request-id", "mine"),))
        await refusal(served.embed())
        await all_ended(served)
    lines = [record for record in caplog.records if record.name == "twinlens.access"]
    first, second = (record.fields for record in lines)  # type: ignore[attr-defined]  # ours
    seconds, peer = first.pop("seconds"), first.pop("peer")
    assert first == {
        "request_id": "mine",
        "method": f"{EMBEDDING}/Embed",
        "code": "OK",
        "items": 2,
        "failed_items": 1,
    }
    assert seconds > 0
    assert peer.startswith("ipv4:127.0.0.1:")
    assert second["code"] == "INVALID_ARGUMENT"
    assert "secret" not in caplog.text


async def test_the_token_of_a_call_is_named_and_a_stranger_is_counted_by_the_method_he_asked_for(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "twinlens.access")
    token = token_in(tmp_path / "tokens.toml", "indexer", "read")
    async with run_server(data, WatchedEncoder(), tokens=tmp_path / "tokens.toml", log_format="json") as served:
        await served.embedding.Embed(embed_request("a text"), metadata=bearer(token))
        assert (await refusal(served.embed("a text")))[0] is grpc.StatusCode.UNAUTHENTICATED
        now = await all_ended(served)
    (stranger,) = now.samples("grpc_server_handled_total", grpc_code="Unauthenticated")
    assert (stranger.labels["grpc_type"], stranger.labels["grpc_method"], stranger.value) == ("unary", "Embed", 1)
    assert now.sum("grpc_server_msg_received_total", grpc_method="Embed") == 1
    first, second = (record.fields for record in caplog.records if record.name == "twinlens.access")  # type: ignore[attr-defined]  # ours
    assert (first["token"], first["code"]) == ("indexer", "OK")
    assert "token" not in second
    assert second["code"] == "UNAUTHENTICATED"
    assert token not in caplog.text


async def test_a_caller_who_vanishes_in_the_middle_of_a_stream_is_no_fault_of_the_server(
    served: Running, encoder: WatchedEncoder
) -> None:
    encoder.hold()
    async with grpc.aio.insecure_channel(served.server.address) as channel:
        stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)
        stream: Any = stub.EmbedStream()
        await stream.write(embedding_pb2.EmbedStreamRequest(inputs=embed_request("a", "b").inputs))
        await encoder.entered()
    encoder.release()
    now = await all_ended(served)
    (ended,) = (sample for sample in now.samples("grpc_server_handled_total") if sample.value)
    assert (ended.labels["grpc_method"], ended.labels["grpc_code"]) == ("EmbedStream", "Canceled")
    assert now.sum("grpc_server_msg_received_total") == 1
    assert now.sum("twinlens_items_total") == now.sum("twinlens_item_outcomes_total")


async def test_as_text_the_access_log_is_kept_for_debugging(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with run_server(data, WatchedEncoder()) as served:
        await served.embed("a text")
        await all_ended(served)
    assert "twinlens.access" not in {record.name for record in caplog.records}
