from __future__ import annotations

import grpc
import numpy as np
import pytest

from tests.server.running import Running, picture
from tests.support.fake_encoder import FakeEncoder
from twinlens.v1 import content_pb2, embedding_pb2


def vector(result: embedding_pb2.EmbedResult) -> np.ndarray:
    assert result.WhichOneof("outcome") == "embedding", result.error
    return np.asarray(result.embedding.values, dtype=np.float32)


async def test_pictures_and_texts_come_back_as_unit_vectors_in_order(served: Running) -> None:
    reply = await served.embed("red", picture("red"), picture("blue"), "blue")
    red_text, red, blue, blue_text = (vector(result) for result in reply.results)
    for one in (red_text, red, blue, blue_text):
        assert np.linalg.norm(one) == pytest.approx(1.0, abs=1e-5)
    assert red @ red_text > 0.8 > red @ blue_text
    assert blue @ blue_text > 0.8 > blue @ red_text
    assert reply.model.space_id == FakeEncoder().manifest.space_id
    assert reply.model.dimension == 32
    assert reply.model.has_image_tower
    assert reply.model.has_text_tower


async def test_good_items_beside_bad_ones_get_exactly_what_they_get_alone(served: Running) -> None:
    good: list[bytes | str] = [picture("red"), "a green field", picture("cyan", size=40)]
    alone = [vector((await served.embed(entry)).results[0]) for entry in good]
    mixed = await served.embed(b"no picture", good[0], "", good[1], b"", good[2], picture("red")[:40])
    for position, expected in zip((1, 3, 5), alone, strict=True):
        np.testing.assert_array_equal(vector(mixed.results[position]), expected)
    reasons = [mixed.results[position].error.reason for position in (0, 2, 4, 6)]
    assert reasons == [
        content_pb2.ERROR_REASON_INVALID_IMAGE,
        content_pb2.ERROR_REASON_INVALID_TEXT,
        content_pb2.ERROR_REASON_INVALID_IMAGE,
        content_pb2.ERROR_REASON_INVALID_IMAGE,
    ]
    assert all(mixed.results[position].error.message for position in (0, 2, 4, 6))


async def test_an_input_with_nothing_set_fails_alone(served: Running) -> None:
    request = embedding_pb2.EmbedRequest(inputs=[embedding_pb2.EmbedInput(), embedding_pb2.EmbedInput(text="red")])
    reply = await served.embedding.Embed(request)
    assert reply.results[0].error.reason == content_pb2.ERROR_REASON_INVALID_INPUT
    vector(reply.results[1])


async def test_a_cut_text_says_so(served: Running) -> None:
    reply = await served.embed("word " * 50, "word")
    assert [result.truncated for result in reply.results] == [True, False]


@pytest.mark.parametrize("count", [0, 1025])
async def test_too_few_and_too_many_inputs_are_refused(served: Running, count: int) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.embed(*["red"] * count)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(count) in (caught.value.details() or "")


async def test_as_many_inputs_as_allowed_are_answered(served: Running) -> None:
    reply = await served.embed(*[f"text {i}" for i in range(1024)])
    assert len(reply.results) == 1024
    np.testing.assert_array_equal(vector(reply.results[7]), vector((await served.embed("text 7")).results[0]))
