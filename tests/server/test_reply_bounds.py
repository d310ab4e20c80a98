"""What a reply holds and what a stream is worked on with is bounded before it is built, however small the request."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tests.server.running import Running, refusal, run_server
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.call import Call
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.incoming import Incoming, in_groups
from twinlens.server.services import convert
from twinlens.server.services.collection import _incoming
from twinlens.v1 import collection_operations_pb2, content_pb2, search_pb2
from twinlens.v1 import collection_pb2 as pb


async def fill_with_long_metadata(served: Running) -> None:
    await served.create()
    for start in range(0, 40, 10):
        items = [pb.NewItem(id=f"{i:02d}", caption=f"text {i}") for i in range(start, start + 10)]
        for item in items:
            item.metadata["long"] = "x" * 60_000
        assert (await served.upsert(*items)).stored_count == 10


async def test_a_page_holds_no_more_than_a_message_can(data: Path) -> None:
    async with run_server(data, FakeEncoder(), max_message_bytes=2**20) as served:
        await fill_with_long_metadata(served)
        request = pb.ListItemsRequest(collection="photos", page_size=1000)
        ids: list[str] = []
        while True:
            page = await served.collections.ListItems(request)
            assert page.items
            ids += [item.id for item in page.items]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        assert ids == [f"{i:02d}" for i in range(40)]


async def test_a_reply_too_large_to_send_says_to_ask_for_less(data: Path) -> None:
    async with run_server(data, FakeEncoder(), max_message_bytes=2**20) as served:
        await fill_with_long_metadata(served)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.find(search_pb2.QueryPart(text="text"), modality=content_pb2.MODALITY_TEXT, top_k=40)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "ask for less" in (caught.value.details() or "")
        found = await served.find(search_pb2.QueryPart(text="text"), modality=content_pb2.MODALITY_TEXT, top_k=10)
        assert len(found.results[0].hits) == 10


async def test_a_reply_too_large_to_send_is_never_built(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    def hit(found: Any) -> search_pb2.Hit:
        wire = convert.hit(found)
        built.append(wire.ByteSize())
        return wire

    monkeypatch.setattr("twinlens.server.services.search.convert", SimpleNamespace(**{**vars(convert), "hit": hit}))
    async with run_server(data, FakeEncoder(), max_message_bytes=2**20) as served:
        await fill_with_long_metadata(served)
        query = search_pb2.Query(parts=[search_pb2.QueryPart(text="text")])
        request = search_pb2.SearchRequest(
            collection="photos", queries=[query] * 256, top_k=40, modality=content_pb2.MODALITY_TEXT
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.search.Search(request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "1048576 bytes that can be sent; ask for less" in (caught.value.details() or "")
        assert sum(built) < 2**20 + 2**17


async def test_items_that_no_reply_could_hold_are_not_even_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlens.server.core.search._CHARACTERS_A_BYTE", 1)
    async with run_server(data, FakeEncoder(), max_message_bytes=2**20) as served:
        await fill_with_long_metadata(served)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.find(search_pb2.QueryPart(text="text"), modality=content_pb2.MODALITY_TEXT, top_k=40)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "more than 1048576 characters; ask for fewer" in (caught.value.details() or "")


async def test_an_id_too_long_to_be_one_is_not_sent_back_whole(served: Running) -> None:
    await served.create()
    (failure,) = (await served.upsert(pb.NewItem(id="x" * 1_000_000, caption="red"))).failures
    assert failure.id == "x" * 57 + "..."
    assert failure.error.reason == content_pb2.ERROR_REASON_INVALID_INPUT


@pytest.mark.parametrize("word", ["x", "é", "日", "🦊", "\n", "\x1b", "\u202e"])
@pytest.mark.parametrize("length", [1, 1_990, 2_000, 300_000])
async def test_a_refusal_is_one_short_line_whatever_part_of_the_request_it_holds(
    served: Running, word: str, length: int
) -> None:
    await served.create()
    text = word * length
    item = pb.NewItem(id="a", image_vector=content_pb2.Vector(values=[1.0] * 32))
    upsert = [pb.UpsertItemsRequest(collection="photos", items=[item], space_id=text)]
    path = collection_operations_pb2.DeleteMetadataIndexRequest(collection="photos", path=f'"{text}"')
    for call, code in (
        (served.collections.UpsertItems(iter(upsert)), grpc.StatusCode.FAILED_PRECONDITION),
        (served.operations.DeleteMetadataIndex(path), grpc.StatusCode.INVALID_ARGUMENT),
    ):
        status, message = await refusal(call)
        assert status is code, message[:200]
        assert message.isprintable()
        assert len(message.encode()) <= 2000
        assert message.endswith("…") == (length > 1 and len(message.encode()) > 1990)


async def test_a_stream_of_more_failures_than_a_reply_can_tell_is_refused(data: Path) -> None:
    async def endless() -> AsyncIterator[Incoming]:
        yield Incoming(0, id="good", caption="red")
        for position in itertools.count(1):
            yield Incoming(position, id="i" * 1000)

    async with run_server(data, FakeEncoder(), max_message_bytes=2**20) as served:
        await served.create()
        collection = await served.app.collection("photos", Call("test"))
        with pytest.raises(ServiceError, match="more than a reply can tell") as caught:
            await served.app.upserter.upsert(collection, endless(), Call("test"))
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert [item.id for item in collection.list()] == ["good"]


async def test_failures_are_told_beside_the_event_loop(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def item_error(failure: Any) -> content_pb2.ItemError:
        threads.append(threading.current_thread())
        return convert.item_error(failure)

    patched = SimpleNamespace(**{**vars(convert), "item_error": item_error})
    monkeypatch.setattr("twinlens.server.services.collection.convert", patched)
    await served.create()
    assert len((await served.upsert(pb.NewItem(id="a"), pb.NewItem(id="b"))).failures) == 2
    assert len(threads) == 2
    assert threading.current_thread() not in threads


async def test_all_of_an_item_counts_in_how_much_is_worked_on_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlens.server.core.incoming.GROUP_BYTES", 2000)
    long = [pb.NewItem(caption="ä" * 500), pb.NewItem(uri="u" * 1000), pb.NewItem(image=b"i" * 1000), pb.NewItem()]
    long[3].metadata["long"] = "m" * 1000
    broken = pb.NewItem(id="ä" * 500)
    broken.metadata["bad"] = math.nan
    items = [*long, broken, broken]

    sent = _incoming("photos", pb.UpsertItemsRequest(items=items), no_more())
    assert [[item.position for item in group] async for group in in_groups(sent)] == [[0, 1], [2, 3], [4, 5]]


async def no_more() -> AsyncIterator[pb.UpsertItemsRequest]:
    for request in list[pb.UpsertItemsRequest]():
        yield request
