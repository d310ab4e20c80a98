"""Models of pictures or texts alone: what they can is served, what they cannot is refused with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.server.running import Running, picture, run_server
from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import COLOURS
from twinlens.server.reindexing import reindex_folder
from twinlens.server.settings import Settings
from twinlens.v1 import collection_pb2, content_pb2, embedding_pb2, model_pb2, search_pb2

Part = search_pb2.QueryPart
UNSUPPORTED = content_pb2.ERROR_REASON_UNSUPPORTED
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


@pytest_asyncio.fixture
async def pictures_only(data: Path) -> AsyncIterator[Running]:
    async with run_server(data, FakeEncoder(text=False)) as running:
        yield running


def assert_says_why(caught: pytest.ExceptionInfo[grpc.aio.AioRpcError], *parts: str) -> None:
    assert caught.value.code() is PRECONDITION
    details = caught.value.details() or ""
    for part in ("the model fake/1", "embeds pictures only and has no text tower", "or use a bundle", *parts):
        assert part in details
    assert "\n" not in details


async def test_pictures_are_stored_with_their_captions_and_found_by_pictures(pictures_only: Running) -> None:
    await pictures_only.fill_with_colours()
    described = await pictures_only.collections.GetCollection(collection_pb2.GetCollectionRequest(collection="photos"))
    assert described.collection.image_vector_count == len(COLOURS)
    assert described.collection.text_vector_count == 0
    for part in (Part(image=picture("red")), Part(item_id="red")):
        reply = await pictures_only.find(part)
        assert reply.results[0].hits[0].item.id == "red"
        assert reply.results[0].hits[0].item.caption == "a red square"
    assert not reply.model.has_text_tower
    model = (await pictures_only.models.GetModel(model_pb2.GetModelRequest())).model
    assert not model.info.has_text_tower


async def test_health_is_that_of_the_tower_there_is(pictures_only: Running) -> None:
    reply = await health_pb2_grpc.HealthStub(pictures_only.channel).Check(health_pb2.HealthCheckRequest())
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_text_query_is_refused_with_the_reason(pictures_only: Running) -> None:
    await pictures_only.fill_with_colours()
    for parts in ([Part(text="red")], [Part(image=picture("red")), Part(text="snow", weight=-0.5)]):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pictures_only.find(*parts)
        assert_says_why(caught, "a text cannot be embedded", "give a picture instead")


async def test_a_text_query_among_queries_by_picture_fails_alone(pictures_only: Running) -> None:
    await pictures_only.fill_with_colours()
    queries = [search_pb2.Query(parts=[part]) for part in (Part(text="red"), Part(image=picture("blue")))]
    reply = await pictures_only.search.Search(search_pb2.SearchRequest(collection="photos", queries=queries, top_k=1))
    assert reply.results[0].error.reason == UNSUPPORTED
    assert "no text tower" in reply.results[0].error.message
    assert reply.results[1].hits[0].item.id == "blue"


async def test_captions_cannot_be_searched(pictures_only: Running) -> None:
    await pictures_only.fill_with_colours()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await pictures_only.find(Part(image=picture("red")), modality=content_pb2.MODALITY_TEXT)
    assert_says_why(caught, "no item has a caption's vector", "search the pictures")


async def test_the_caption_of_an_item_is_no_query(pictures_only: Running) -> None:
    await pictures_only.fill_with_colours()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await pictures_only.find(Part(item_id="red", item_modality=content_pb2.MODALITY_TEXT))
    assert_says_why(caught, "no item has a caption's vector", "start from the pictures (modality image)")


async def test_texts_are_not_embedded_and_fail_alone_beside_pictures(pictures_only: Running) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await pictures_only.embed("red", "blue")
    assert_says_why(caught, "a text cannot be embedded")
    reply = await pictures_only.embed("red", picture("red"))
    assert reply.results[0].error.reason == UNSUPPORTED
    assert reply.results[1].WhichOneof("outcome") == "embedding"
    # Not for want of a tower alone: each says what is wrong with it.
    request = embedding_pb2.EmbedRequest(
        inputs=[embedding_pb2.EmbedInput(image=b"x"), embedding_pb2.EmbedInput(text="a")]
    )
    reply = await pictures_only.embedding.Embed(request)
    assert [result.error.reason for result in reply.results] == [content_pb2.ERROR_REASON_INVALID_IMAGE, UNSUPPORTED]


async def test_an_item_of_a_caption_alone_is_not_stored_and_says_why(pictures_only: Running) -> None:
    await pictures_only.create()
    report = await pictures_only.upsert(
        collection_pb2.NewItem(id="words", caption="a red square"),
        collection_pb2.NewItem(id="both", caption="a red square", image=picture("red")),
    )
    assert report.stored_count == 1
    (failure,) = report.failures
    assert (failure.id, failure.error.reason) == ("words", UNSUPPORTED)
    assert (
        "no text tower, so an item of a caption alone could never be found; give it a picture" in failure.error.message
    )


async def test_a_folder_moves_to_a_model_of_pictures_alone_and_back(data: Path, tmp_path: Path) -> None:
    both, pictures = FakeEncoder(), FakeEncoder(text=False)
    async with run_server(data, both) as served:
        await served.fill_with_colours()
        await served.upsert(collection_pb2.NewItem(id="words", caption="a red square"))

    async def move(encoder: FakeEncoder) -> list[str]:
        report = await asyncio.to_thread(
            reindex_folder, data, tmp_path / "bundle", Settings(), lambda _: None, encoder=encoder
        )
        return [each.id for each in report.unembeddable]

    assert await move(pictures) == ["words"]
    async with run_server(data, pictures) as served:
        assert (await served.find(Part(image=picture("red")), top_k=1)).results[0].hits[0].item.id == "red"
        kept = await served.collections.GetItem(collection_pb2.GetItemRequest(collection="photos", id="words"))
        assert kept.item.caption == "a red square"
    assert await move(both) == []
    async with run_server(data, both) as served:
        reply = await served.find(Part(text="a red square"), modality=content_pb2.MODALITY_TEXT, top_k=9)
        assert {hit.item.id for hit in reply.results[0].hits[:2]} == {"red", "words"}


async def test_a_model_of_texts_alone_refuses_pictures_in_the_same_way(data: Path) -> None:
    async with run_server(data, FakeEncoder(image=False)) as served:
        await served.create()
        assert (await served.upsert(collection_pb2.NewItem(id="words", caption="red"))).stored_count == 1
        text = content_pb2.MODALITY_TEXT
        assert (await served.find(Part(text="red"), modality=text)).results[0].hits[0].item.id == "words"
        for part, modality, said in (
            (Part(image=picture("red")), text, "a picture cannot be embedded; give a text instead"),
            (Part(text="red"), content_pb2.MODALITY_IMAGE, "search the captions (modality text)"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await served.find(part, modality=modality)
            assert caught.value.code() is PRECONDITION
            assert "embeds texts only and has no image tower" in (caught.value.details() or "")
            assert said in (caught.value.details() or "")
