from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc
import numpy as np
import pytest

from tests.server.running import Running, picture, refusal
from tests.server.watched import until
from tests.support.pictures import COLOURS
from twinlens.server.core import backlog
from twinlens.server.core.engine import Outcome
from twinlens.server.core.errors import Reason
from twinlens.server.core.search import mix
from twinlens.v1 import collection_pb2, content_pb2, search_pb2

Part = search_pb2.QueryPart
IMAGE, TEXT = content_pb2.MODALITY_IMAGE, content_pb2.MODALITY_TEXT


def ids(reply: search_pb2.SearchResponse, query: int = 0) -> list[str]:
    assert not reply.results[query].HasField("error"), reply.results[query].error
    return [hit.item.id for hit in reply.results[query].hits]


async def test_texts_find_pictures_and_pictures_find_captions(served: Running) -> None:
    await served.fill_with_colours()
    assert ids(await served.find(Part(text="red")))[0] == "red"
    assert ids(await served.find(Part(image=picture("blue", 24))))[0] == "blue"
    assert ids(await served.find(Part(image=picture("cyan")), modality=TEXT))[0] == "cyan"
    assert ids(await served.find(Part(text="green"), modality=TEXT, exact=True))[0] == "green"


async def test_hits_are_best_first_with_the_item_and_the_cosine(served: Running) -> None:
    await served.fill_with_colours()
    reply = await served.find(Part(text="red"), top_k=8)
    hits = reply.results[0].hits
    scores = [hit.score for hit in hits]
    assert len(hits) == 8
    assert scores == sorted(scores, reverse=True)
    assert hits[0].item.caption == "a red square"
    assert hits[0].item.HasField("create_time")
    text = np.asarray((await served.embed("red")).results[0].embedding.values)
    red = np.asarray((await served.embed(picture("red"))).results[0].embedding.values)
    assert hits[0].score == pytest.approx(float(text @ red), abs=1e-5)
    assert reply.model.dimension == 32


async def test_a_stored_item_is_a_query_by_its_picture_or_its_caption(served: Running) -> None:
    await served.fill_with_colours()
    await served.upsert(collection_pb2.NewItem(id="words", caption="red"))
    assert ids(await served.find(Part(item_id="blue")))[0] == "blue"
    assert ids(await served.find(Part(item_id="words")))[0] == "red"
    by_caption = await served.find(Part(item_id="blue", item_modality=TEXT), modality=TEXT)
    assert by_caption.results[0].hits[0].score == pytest.approx(1.0, abs=1e-5)
    strict = await served.find(Part(item_id="words", item_modality=IMAGE))
    assert strict.results[0].error.reason == content_pb2.ERROR_REASON_NOT_FOUND


async def test_parts_are_mixed_by_weight(served: Running) -> None:
    await served.fill_with_colours()
    mostly_red = await served.find(Part(text="red"), Part(image=picture("blue"), weight=0.5))
    assert ids(mostly_red)[:2] == ["red", "blue"]
    vectors = [np.asarray(result.embedding.values) for result in (await served.embed("red", picture("blue"))).results]
    expected = vectors[0] + 0.5 * vectors[1]
    same = await served.find(Part(vector=content_pb2.Vector(values=(7 * expected).tolist())))
    scores = [[hit.score for hit in reply.results[0].hits] for reply in (mostly_red, same)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)
    away = await served.find(Part(text="red"), Part(text="blue", weight=-1), top_k=8)
    assert ids(away)[0] == "red"
    assert ids(away)[-1] == "blue"


async def test_one_bad_query_fails_alone(served: Running) -> None:
    await served.fill_with_colours()
    bad: list[tuple[list[search_pb2.QueryPart], int]] = [
        ([], content_pb2.ERROR_REASON_INVALID_INPUT),
        ([Part(text="red")] * 17, content_pb2.ERROR_REASON_INVALID_INPUT),
        ([Part()], content_pb2.ERROR_REASON_INVALID_INPUT),
        ([Part(item_id="")], content_pb2.ERROR_REASON_INVALID_INPUT),
        ([Part(item_id="a\0")], content_pb2.ERROR_REASON_INVALID_INPUT),
        ([Part(item_id="a" * 1025)], content_pb2.ERROR_REASON_INVALID_INPUT),
        ([Part(text="red", weight=float("nan"))], content_pb2.ERROR_REASON_INVALID_INPUT),
        ([Part(text="")], content_pb2.ERROR_REASON_INVALID_TEXT),
        ([Part(text=" \n")], content_pb2.ERROR_REASON_INVALID_TEXT),
        ([Part(image=b"GIF89a")], content_pb2.ERROR_REASON_INVALID_IMAGE),
        ([Part(text="red"), Part(image=b"")], content_pb2.ERROR_REASON_INVALID_IMAGE),
        ([Part(item_id="nobody")], content_pb2.ERROR_REASON_NOT_FOUND),
        ([Part(vector=content_pb2.Vector(values=[1.0] * 31))], content_pb2.ERROR_REASON_INVALID_VECTOR),
        ([Part(vector=content_pb2.Vector(values=[]))], content_pb2.ERROR_REASON_INVALID_VECTOR),
        ([Part(vector=content_pb2.Vector(values=[0.0] * 32))], content_pb2.ERROR_REASON_INVALID_VECTOR),
        ([Part(vector=content_pb2.Vector(values=[float("inf")] * 32))], content_pb2.ERROR_REASON_INVALID_VECTOR),
        ([Part(text="red"), Part(text="red", weight=-1)], content_pb2.ERROR_REASON_INVALID_VECTOR),
        ([Part(text="red", weight=0)], content_pb2.ERROR_REASON_INVALID_VECTOR),
    ]
    queries = [search_pb2.Query(parts=[Part(text="red")])]
    queries += [search_pb2.Query(parts=parts) for parts, _ in bad]
    queries += [search_pb2.Query(parts=[Part(text="blue")])]
    reply = await served.search.Search(search_pb2.SearchRequest(collection="photos", queries=queries, top_k=1))
    assert ids(reply, 0) == ["red"]
    assert ids(reply, len(bad) + 1) == ["blue"]
    for result, (parts, reason) in zip(reply.results[1:-1], bad, strict=True):
        assert result.error.reason == reason, parts
        assert result.error.message
        assert not result.hits


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"top_k": 0}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"top_k": -1}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"top_k": 10_001}, grpc.StatusCode.INVALID_ARGUMENT),
        (
            {"top_k": 10_000, "queries": [search_pb2.Query(parts=[Part(text="red")])] * 11},
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        ({"collection": ""}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"collection": "nowhere"}, grpc.StatusCode.NOT_FOUND),
        ({"min_score": float("nan")}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"modality": 7}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"queries": []}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"queries": [search_pb2.Query(parts=[Part(text="red")])] * 257}, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_a_request_that_breaks_the_contract_is_refused(
    served: Running, change: dict[str, Any], code: grpc.StatusCode
) -> None:
    await served.create()
    request = {"collection": "photos", "queries": [search_pb2.Query(parts=[Part(text="red")])], "top_k": 3, **change}
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.search.Search(search_pb2.SearchRequest(**request))
    assert caught.value.code() is code
    assert "\n" not in (caught.value.details() or "\n")


async def test_fewer_hits_come_back_only_where_there_are_fewer(served: Running) -> None:
    await served.create()
    assert ids(await served.find(Part(text="red"))) == []
    await served.upsert(collection_pb2.NewItem(id="one", image=picture("red")))
    assert ids(await served.find(Part(text="red"), top_k=10_000)) == ["one"]
    assert ids(await served.find(Part(text="red"), modality=TEXT)) == []


async def test_a_least_score_leaves_out_worse_hits(served: Running) -> None:
    await served.fill_with_colours()
    reply = await served.find(Part(text="red"), top_k=8, min_score=0.7)
    assert ids(reply) == ["red"]


async def test_a_cut_query_text_says_so(served: Running) -> None:
    await served.fill_with_colours()
    reply = await served.find(Part(text="red " * 40))
    assert reply.results[0].truncated
    assert not (await served.find(Part(text="red"))).results[0].truncated


def test_a_mix_does_not_overflow_or_drown() -> None:
    east, north = np.array([1, 0], dtype=np.float32), np.array([0, 1], dtype=np.float32)
    parts = [Outcome(vector=east), Outcome(vector=north)]
    for scale in (1e-30, 1.0, 1e30):
        mixed = mix(parts, [scale, scale])
        assert mixed.vector is not None
        np.testing.assert_allclose(mixed.vector, [0.5**0.5, 0.5**0.5], rtol=1e-6)
    cancelled = mix([Outcome(vector=east), Outcome(vector=east)], [1.0, -1.0])
    assert cancelled.failure is not None
    assert cancelled.failure.reason is Reason.INVALID_VECTOR


async def test_callers_at_once_get_what_each_gets_alone(served: Running) -> None:
    await served.fill_with_colours()
    words = [f"{size} {colour}" for size in ("small", "large", "bright") for colour in COLOURS]
    alone = [await served.find(Part(text=word), top_k=5) for word in words]
    together = await asyncio.gather(*(served.find(Part(text=word), top_k=5) for word in words))
    assert [ids(reply) for reply in together] == [ids(reply) for reply in alone]
    for one, other in zip(together, alone, strict=True):
        scores = [[hit.score for hit in reply.results[0].hits] for reply in (one, other)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-6)


async def test_a_collection_that_hangs_keeps_out_only_those_who_search_it(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "_BURST_S", 1e9)
    await served.fill_with_colours()
    await served.create("others")
    answers = threading.Event()
    hanging = served.app.catalog.get("photos")
    search = hanging.search

    def hang(*arguments: Any, **options: Any) -> Any:
        answers.wait(30)
        return search(*arguments, **options)

    monkeypatch.setattr(hanging, "search", hang)
    like = content_pb2.Vector(values=[1.0] * 32)
    calls = [asyncio.ensure_future(served.find(Part(text="red"))) for _ in range(70)]
    calls += [asyncio.ensure_future(served.find(Part(vector=like))) for _ in range(70)]
    admission = served.app.admission
    await until(lambda: admission.items == len(calls) and not admission._texts._calls)
    monkeypatch.setattr(backlog, "_BURST_S", 0.0)  # they stand there for long by now
    assert (await served.embed("red")).results[0].WhichOneof("outcome") == "embedding"
    assert len((await served.find(Part(text="red"), collection="others")).results) == 1
    code, _ = await refusal(served.find(Part(text="red")))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    answers.set()
    assert {len(reply.results) for reply in await asyncio.gather(*calls)} == {1}
    assert ids(await served.find(Part(text="red")))[0] == "red"
