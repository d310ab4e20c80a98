"""Streams of inputs to embed and of pictures to label: order, errors, progress, and what ends them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import COLOURS, solid
from twinlens.client import (
    AsyncClient,
    Client,
    Embedding,
    NewItem,
    NoneOfThese,
    OperationProgress,
    StoredItem,
    TextInput,
    TwinlensError,
)
from twinlens.client.stream_calls import _MESSAGE_ITEMS
from twinlens.server.local import local_server
from twinlens.server.settings import Settings

NAMES = list(COLOURS)


def pictures(count: int) -> Iterator[bytes]:
    return (solid(NAMES[number % len(NAMES)], size=(4, 4)) for number in range(count))


def best(results: Any) -> list[str]:
    return [result.scores[0].label for result in results]


def test_inputs_of_all_kinds_come_back_in_order_as_one_call_gives_them(client: Any, tmp_path: Path) -> None:
    client.create_collection("streamed", exist_ok=True)
    client.upsert("streamed", [NewItem(id="red", image=solid("red"), caption="a red square")])
    (tmp_path / "blue.png").write_bytes(solid("blue"))
    inputs = [
        solid("green"),
        TextInput("a red square"),
        tmp_path / "blue.png",
        StoredItem("streamed", "red"),
        StoredItem("streamed", "red", "text"),
        TextInput("word " * 50),
    ]
    found = list(client.embed_stream(inputs))
    images = client.embed_images([solid("green"), solid("blue"), solid("red")])
    texts = client.embed_texts(["a red square", "word " * 50])
    expected = [images.vectors[0], texts.vectors[0], images.vectors[1], images.vectors[2], *texts.vectors]
    for each, vector in zip(found, expected, strict=True):
        np.testing.assert_allclose(each.vector, vector, atol=1e-6)
        assert each.error is None
        assert each.model == images.model
        assert each.vector.dtype == np.float32
    assert [each.truncated for each in found] == [False] * 5 + [True]


def test_inputs_that_fail_keep_their_places(client: Any, tmp_path: Path) -> None:
    good, missing = solid("red"), tmp_path / "missing.png"
    inputs = [missing, good, b"no picture", TextInput(""), good, b"", StoredItem("nowhere", "x"), missing]
    found = list(client.embed_stream(inputs))
    assert [each.vector is not None for each in found] == [False, True, False, False, True, False, False, False]
    assert [None if each.error is None else each.error.reason for each in found] == [
        "INVALID_IMAGE",
        None,
        "INVALID_IMAGE",
        "INVALID_TEXT",
        None,
        "INVALID_IMAGE",
        "NOT_FOUND",
        "INVALID_IMAGE",
    ]
    assert found[0].model is None  # it was never sent
    assert found[2].model is not None


@pytest.mark.parametrize("bad", [range(0), range(3), range(40, 80), range(96), range(64, 100), range(100)])
def test_however_inputs_that_cannot_be_sent_are_spread_all_keep_their_places(client: Any, bad: range) -> None:
    inputs = [b"" if number in bad else each for number, each in enumerate(pictures(100))]
    found = client.classify_stream(inputs, NAMES, top_k=1)
    for number, result in enumerate(found):
        if number in bad:
            assert result.error.reason == "INVALID_IMAGE"
        else:
            assert result.scores[0].label == NAMES[number % len(NAMES)]
    assert number == 99


def test_pictures_are_labelled_as_in_one_call(client: Any) -> None:
    some = [*pictures(8), b"no picture"]
    for options in (
        {"labels": ["red", "blue"], "templates": ["{} {x}"], "multi_label": True},
        {"labels": ["red", "blue"], "none_of_these": NoneOfThese(min_cosine=0.5, background=["a green wall"])},
        {"examples": {"warm": [solid("red"), solid("yellow")], "cold": [solid("blue")]}, "top_k": 1},
    ):
        whole = client.classify(some, **options)
        streamed = list(client.classify_stream(some, **options))
        for one, other in zip(streamed, whole, strict=True):
            assert [score.label for score in one.scores] == [score.label for score in other.scores]
            assert one.error == other.error
            assert one.none_of_these == other.none_of_these
            assert one.background_cosine == pytest.approx(other.background_cosine, abs=1e-5)


def test_nothing_in_nothing_out(client: Any) -> None:
    assert list(client.embed_stream([])) == []
    assert list(client.classify_stream([], ["a"])) == []


def test_progress_is_told_up_to_the_end(client: Any) -> None:
    told: list[OperationProgress] = []
    some = list(pictures(70))
    list(client.classify_stream(some, NAMES, top_k=1, progress=told.append))
    assert [each.done for each in told] == [32, 64, 70]
    assert {(each.step, each.total) for each in told} == {("labelled", 70)}
    told.clear()
    list(client.embed_stream(iter([*some, b""]), progress=told.append))
    assert told[-1] == OperationProgress("embedded", 71, 0)
    told.clear()
    list(client.embed_stream([b""], progress=told.append))
    assert told == [OperationProgress("embedded", 1, 1)]


def test_what_the_callers_iterable_raises_is_the_callers(client: Any) -> None:
    def broken() -> Iterator[bytes]:
        yield from pictures(3)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(client.embed_stream(broken()))


def test_a_stream_that_the_server_refuses_is_an_error_of_its_own(client: Any) -> None:
    for options, code in (
        ({"labels": ["a", "a"]}, "INVALID_ARGUMENT"),
        ({"label_set": "nowhere"}, "NOT_FOUND"),
        ({"labels": ["a"], "none_of_these": NoneOfThese(min_cosine=3)}, "INVALID_ARGUMENT"),
    ):
        with pytest.raises(TwinlensError) as caught:
            list(client.classify_stream(pictures(3), **options))
        assert caught.value.code == code


def test_one_value_where_several_belong_is_a_mistake_of_the_program(client: Any) -> None:
    for name, *arguments in (("embed_stream", "cat.jpg"), ("classify_stream", solid("red"), ["a"])):
        with pytest.raises(TypeError, match="brackets"):
            list(getattr(client, name)(*arguments))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"labels": "abc"},
        {"labels": ["a"], "label_set": "b"},
        {"label_set": "b", "templates": ["{}"]},
        {"label_set": "b", "multi_label": True},
        {"label_set": "b", "none_of_these": NoneOfThese(min_cosine=0.5)},
        {"labels": ["a"], "none_of_these": NoneOfThese(min_cosine="high")},  # type: ignore[arg-type]
    ],
)
def test_what_contradicts_itself_is_refused_by_both_ways_to_label(client: Any, options: dict[str, Any]) -> None:
    for label in (client.classify, lambda *given, **more: list(client.classify_stream(*given, **more))):
        with pytest.raises(TwinlensError) as caught:
            label([solid("red")], **options)
        assert caught.value.code == "INVALID_ARGUMENT"


def test_results_come_before_all_is_read(open_client: Callable[..., Any], target: str) -> None:
    """A generator that waits for the first result before it gives more: neither side waits for the other."""
    seen = threading.Event()

    def feed() -> Iterator[bytes]:
        yield from pictures(2 * _MESSAGE_ITEMS)
        assert seen.wait(20)
        yield from pictures(3)

    with Client(target) as client:
        count = 0
        for _ in client.embed_stream(feed()):
            seen.set()
            count += 1
    assert count == 2 * _MESSAGE_ITEMS + 3


async def test_results_come_before_all_is_read_without_blocking_the_loop(target: str) -> None:
    seen = threading.Event()

    def feed() -> Iterator[bytes]:
        yield from pictures(2 * _MESSAGE_ITEMS)
        assert seen.wait(20)
        yield from pictures(3)

    async with AsyncClient(target) as client:
        found: AsyncIterator[Embedding] = client.embed_stream(feed())
        count = 0
        async for _ in found:
            seen.set()
            count += 1
    assert count == 2 * _MESSAGE_ITEMS + 3


def test_a_stream_that_is_left_early_reads_little_more(target: str) -> None:
    read = 0

    def feed() -> Iterator[bytes]:
        nonlocal read
        for each in pictures(100_000):
            read += 1
            yield each

    with Client(target) as client:
        for _ in client.embed_stream(feed()):
            break
        assert client.embed_texts(["still here"]).vectors.shape == (1, 32)
    assert read < 50_000


def test_a_picture_that_is_more_than_the_server_takes_fails_alone(tmp_path: Path) -> None:
    settings = Settings(canary_interval_s=3600.0, max_message_bytes=2**20)
    with (
        local_server(encoder=FakeEncoder(), settings=settings) as target,
        Client(target) as client,
    ):
        big = solid("red") + bytes(2**20)
        results = list(client.classify_stream([solid("red"), big, solid("blue")], ["red", "blue"]))
        assert "more than the server takes" in str(results[1].error)
        assert best([results[0], results[2]]) == ["red", "blue"]
        half = solid("green") + bytes(2**19)  # no two of them fit one message
        assert len(list(client.embed_stream([half] * 5))) == 5
