"""Batches cut to what a server says it takes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support.failing_server import Refusal, failing_server, serving
from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import solid
from twinlens.client import ItemError, NewItem, ServerLimits, TwinlensError
from twinlens.client.limits import NOT_TOLD, SURE_BYTES, SURE_COUNT, AskLimits, Kind, Told, fitting
from twinlens.server.local import local_server
from twinlens.server.settings import MIB, Settings
from twinlens.v1 import content_pb2, model_pb2

INPUTS = Kind(lambda told: told.max_inputs, "INVALID_IMAGE", lambda dimension: 4 * dimension)


def cut(batch: list[Any], told: Told, kind: Kind = INPUTS) -> tuple[list[list[Any]], bool]:
    """The pieces, and whether the server was asked for its limits. Items are their own sizes."""
    plan = fitting(batch, lambda each: 0 if isinstance(each, ItemError) else int(each), kind)
    response, asked = None, False
    while True:
        try:
            step = plan.send(response)
        except StopIteration as stop:
            return stop.value, asked
        assert isinstance(step, AskLimits)
        response, asked = told, True


def telling(dimension: int = 8, **limits: int) -> Told:
    told = {"max_message_bytes": 64 * MIB, "max_inputs": 1024, "max_items_in_flight": 2048, **limits}
    model = model_pb2.Model(info=content_pb2.ModelInfo(dimension=dimension))
    return model_pb2.GetModelResponse(model=model, limits=model_pb2.ServerLimits(**told))


def test_what_every_server_takes_is_sent_without_asking() -> None:
    batch = [SURE_BYTES // 64] * SURE_COUNT
    assert cut(batch, telling(max_inputs=1)) == ([batch], False)


@pytest.mark.parametrize("told", [NOT_TOLD, telling(max_message_bytes=0)])
def test_a_server_that_does_not_tell_gets_the_usual(told: Told) -> None:
    batch = [10 * MIB, 2]
    assert cut(batch, told) == ([batch], True)


@given(
    sizes=st.lists(st.integers(0, 2 * MIB), min_size=1, max_size=80),
    max_message=st.integers(MIB, 4 * MIB),
    max_inputs=st.integers(1, 100),
    in_flight=st.integers(1, 400),
    dimension=st.integers(1, 5000),
)
def test_pieces_keep_the_order_and_every_limit(
    sizes: list[int], max_message: int, max_inputs: int, in_flight: int, dimension: int
) -> None:
    told = telling(dimension, max_message_bytes=max_message, max_inputs=max_inputs, max_items_in_flight=in_flight)
    pieces, asked = cut(sizes, told)
    flat = [each for piece in pieces for each in piece]
    assert len(flat) == len(sizes)
    assert all(isinstance(found, ItemError) or found == size for found, size in zip(flat, sizes, strict=True))
    if asked:
        for piece in pieces:
            sent = [each for each in piece if not isinstance(each, ItemError)]
            assert sum(size + 16 for size in sent) <= max_message
            assert len(piece) <= max_inputs
            assert len(piece) <= in_flight
            assert len(piece) == 1 or len(piece) * (4 * dimension) <= max_message
        too_large = [size for size, found in zip(sizes, flat, strict=True) if isinstance(found, ItemError)]
        assert all(size + 64 > max_message for size in too_large)


def test_one_batch_leaves_room_for_other_callers() -> None:
    pieces, _ = cut([1] * 200, telling(max_items_in_flight=64))
    assert {len(piece) for piece in pieces} == {16, 8}


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    """A server that takes messages of 1 MiB."""
    settings = Settings(canary_interval_s=3600.0, max_message_bytes=MIB)
    with local_server(encoder=FakeEncoder(), settings=settings) as target:
        yield target


def noise(size: int, seed: int) -> bytes:
    """A picture that does not compress: about three bytes a pixel."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def test_a_client_tells_the_limits_of_its_server(open_client: Callable[..., Any], small: str, target: str) -> None:
    with open_client(small) as client:
        limits = client.limits()
        assert isinstance(limits, ServerLimits)
        assert limits.max_message_bytes == MIB
        assert limits.max_inputs == 1024
    with open_client(target) as client:
        assert client.limits().max_message_bytes == 64 * MIB


def test_many_pictures_reach_a_server_of_small_messages(open_client: Callable[..., Any], small: str) -> None:
    pictures = [noise(300, seed) for seed in range(8)]  # 270 kB each
    assert sum(map(len, pictures)) > 2 * MIB
    with open_client(small) as client:
        together = client.embed_images(pictures)
        assert not together.errors
        alone = np.concatenate([client.embed_images([each]).vectors for each in pictures])
        np.testing.assert_array_equal(together.vectors, alone)
        labelled = client.classify([*pictures, solid("red")], ["red", "blue"])
        assert [result.error for result in labelled] == [None] * 9
        assert labelled[-1].scores[0].label == "red"


def test_a_picture_that_no_message_of_the_server_holds_fails_alone(open_client: Callable[..., Any], small: str) -> None:
    large = noise(700, 0)  # 1.5 MB
    with open_client(small) as client:
        batch = client.embed_images([solid("red"), large, solid("blue")])
        assert list(batch.errors) == [1]
        assert "1.4 MiB are more than the 1.0 MiB that the server takes at once" in batch.errors[1].message
        assert np.isfinite(batch.vectors[[0, 2]]).all()
        client.create_collection("pictures", exist_ok=True)
        report = client.upsert("pictures", [NewItem(id="large", image=large), NewItem(id="red", image=solid("red"))])
        assert report.stored == 1
        assert [failure.id for failure in report.failures] == ["large"]


def test_many_items_and_ids_reach_a_server_of_small_messages(open_client: Callable[..., Any], small: str) -> None:
    with open_client(small) as client:
        client.create_collection("many", exist_ok=True)
        items = [NewItem(id=f"{n}-{'x' * 400}", caption=f"red {n}", metadata={"text": "y" * 9000}) for n in range(300)]
        done: list[int] = []
        report = client.upsert("many", items, progress=lambda state: done.append(state.done))
        assert (report.stored, report.failures) == (300, ())
        assert done == [300]
        assert client.delete_items("many", [item.id for item in items] * 10) == 300


def test_more_texts_than_an_answer_holds_are_answered_in_several(open_client: Callable[..., Any]) -> None:
    """512 vectors of 1,024 numbers are 2 MiB."""
    settings = Settings(canary_interval_s=3600.0, max_message_bytes=MIB)
    with local_server(encoder=FakeEncoder(1024), settings=settings) as target, open_client(target) as client:
        batch = client.embed_texts([f"word {n}" for n in range(512)])
    assert batch.vectors.shape == (512, 1024)
    assert not batch.errors


def test_limits_are_asked_for_once_and_again_after_the_server_was_away(open_client: Callable[..., Any]) -> None:
    servicer = failing_server()
    servicer.limits = model_pb2.ServerLimits(max_message_bytes=2 * MIB)
    pictures = [b"x" * MIB] * 3
    with serving(servicer, "127.0.0.1:0") as port, open_client(f"127.0.0.1:{port}") as client:
        for _ in range(2):
            assert len(client.embed_images(pictures).vectors) == 3
        assert (servicer.asked, servicer.calls) == (1, 6)
        servicer.refusals = [Refusal(grpc.StatusCode.UNAVAILABLE)]
        client.embed_texts(["a"])
        servicer.limits = model_pb2.ServerLimits(max_message_bytes=4 * MIB)
        servicer.calls = 0
        assert len(client.embed_images(pictures).vectors) == 3
        assert (servicer.asked, servicer.calls) == (2, 1)


def test_asking_for_limits_that_are_not_told_is_no_error(open_client: Callable[..., Any]) -> None:
    with serving(failing_server(), "127.0.0.1:0") as port, open_client(f"127.0.0.1:{port}") as client:
        assert client.limits() == ServerLimits()


def test_a_server_that_is_away_cannot_tell(open_client: Callable[..., Any]) -> None:
    with open_client("127.0.0.1:1", attempts=1) as client, pytest.raises(TwinlensError) as caught:
        client.limits()
    assert caught.value.code == "UNAVAILABLE"
