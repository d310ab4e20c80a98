"""Vectors of stored items, among inputs to embed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.server.running import Running, picture, refusal, run_server
from tests.support.fake_encoder import FakeEncoder
from twinlens.v1 import collection_pb2, content_pb2, embedding_pb2


def item(item_id: str, collection: str = "photos", **options: Any) -> embedding_pb2.EmbedInput:
    return embedding_pb2.EmbedInput(item=embedding_pb2.StoredItem(collection=collection, id=item_id, **options))


async def embed(served: Running, *inputs: embedding_pb2.EmbedInput) -> list[embedding_pb2.EmbedResult]:
    return list((await served.embedding.Embed(embedding_pb2.EmbedRequest(inputs=inputs))).results)


def vector(result: embedding_pb2.EmbedResult) -> np.ndarray:
    assert result.WhichOneof("outcome") == "embedding", result.error
    return np.asarray(result.embedding.values, dtype=np.float32)


async def test_an_items_vector_is_that_of_its_picture_or_on_demand_of_its_caption(served: Running) -> None:
    await served.fill_with_colours()
    by_picture, by_caption = item("red"), item("red", modality=content_pb2.MODALITY_TEXT)
    own = embedding_pb2.EmbedInput(image=picture("red"))
    words = embedding_pb2.EmbedInput(text="a red square")
    stored, caption, embedded, text = [vector(each) for each in await embed(served, by_picture, by_caption, own, words)]
    np.testing.assert_allclose(stored, embedded, atol=1e-6)
    np.testing.assert_allclose(caption, text, atol=1e-6)


async def test_an_item_without_a_picture_has_its_captions_vector(served: Running) -> None:
    await served.create()
    await served.upsert(collection_pb2.NewItem(id="words", caption="a blue field"))
    found, text = await embed(served, item("words"), embedding_pb2.EmbedInput(text="a blue field"))
    np.testing.assert_allclose(vector(found), vector(text), atol=1e-6)


async def test_items_that_are_not_there_fail_alone_and_say_what_is_missing(served: Running) -> None:
    await served.fill_with_colours()
    results = await embed(
        served,
        item("nobody"),
        item("red", "nowhere"),
        item("red", "No Good!"),
        item("red", ""),
        item(""),
        item("red", modality=content_pb2.MODALITY_IMAGE),
        embedding_pb2.EmbedInput(),
        embedding_pb2.EmbedInput(text="red"),
    )
    reasons = [content_pb2.ErrorReason.Name(result.error.reason).removeprefix("ERROR_REASON_") for result in results]
    assert reasons == [
        "NOT_FOUND",
        "NOT_FOUND",
        "INVALID_INPUT",
        "INVALID_INPUT",
        "INVALID_INPUT",
        "UNSPECIFIED",
        "INVALID_INPUT",
        "UNSPECIFIED",
    ]
    for result, part in zip(results, ("nobody", "nowhere", "No Good!", "empty", "empty"), strict=False):
        assert part in result.error.message


async def test_items_need_no_tower(data: Path) -> None:
    async with run_server(data, FakeEncoder(text=False)) as served:
        await served.fill_with_colours()
        stored, text = await embed(served, item("red"), embedding_pb2.EmbedInput(text="red"))
        assert vector(stored).shape == (32,)
        assert text.error.reason == content_pb2.ERROR_REASON_UNSUPPORTED


async def test_an_item_of_another_space_is_refused_alone(served: Running, monkeypatch: Any) -> None:
    await served.fill_with_colours()
    collection = served.app.catalog.get("photos")
    monkeypatch.setattr(type(collection), "space_id", "another")
    results = await embed(served, item("red"), embedding_pb2.EmbedInput(text="red"))
    assert results[0].error.reason == content_pb2.ERROR_REASON_INVALID_INPUT
    assert "another space" in results[0].error.message
    vector(results[1])


async def test_a_modality_that_is_not_known_is_refused(served: Running) -> None:
    await served.fill_with_colours()
    request = embedding_pb2.EmbedRequest(inputs=[item("red", modality=9)])
    code, message = await refusal(served.embedding.Embed(request))
    assert (code.name, message) == ("INVALID_ARGUMENT", "modality 9 is not known")
