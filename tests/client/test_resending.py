"""Streams that break off and go on where they were."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from tests.support.failing_server import FailingServer, failing_server, serving
from twinlens.client import TextInput, TwinlensError
from twinlens.client.resending import Unanswered
from twinlens.v1 import embedding_pb2

PER_MESSAGE = 32


@pytest.fixture
def failing() -> Iterator[tuple[FailingServer, str]]:
    servicer = failing_server()
    with serving(servicer, "127.0.0.1:0") as port:
        yield servicer, f"127.0.0.1:{port}"


def numbered(number: int) -> Message:
    return embedding_pb2.EmbedInput(text=str(number))


@given(
    count=st.integers(0, 12),
    opening=st.integers(0, 1),
    calls=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6),
)
def test_every_message_is_answered_once_whenever_calls_break_off(
    count: int, opening: int, calls: list[tuple[int, int]]
) -> None:
    """Each call takes some messages and answers some of them; the last one takes and answers all."""
    unanswered = Unanswered((numbered(n) for n in range(count)), opening)
    news: list[str] = []
    for taken, answered in [*calls, (100, 100)]:
        sent = unanswered.begin()
        here = [message.text for _, message in zip(range(taken), sent, strict=False)]  # type: ignore[attr-defined]
        assert here[:opening] == [str(n) for n in range(count)][: min(opening, taken)]
        news += [text for text in here[:answered] if unanswered.answered()]
        unanswered.end()
        assert list(sent) == []
    assert news == [str(n) for n in range(count)]


def test_a_message_that_was_being_made_when_its_call_ended_is_sent_by_the_next() -> None:
    making, go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[Message]:
        yield numbered(0)
        making.set()
        go_on.wait(20)
        yield numbered(1)

    unanswered = Unanswered(slowly(), 0)
    first = unanswered.begin()
    next(first)
    thread = threading.Thread(target=lambda: list(first))
    thread.start()
    assert making.wait(20)
    unanswered.answered()  # not held up by the making
    second = unanswered.begin()
    go_on.set()
    assert [message.text for message in second] == ["1"]  # type: ignore[attr-defined]
    thread.join()


@pytest.mark.parametrize("breaks", [[1], [2, 1, 3], [1, 0, 0, 2], [4, 4, 4]])
def test_a_stream_goes_on_where_it_broke_off(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str], breaks: list[int]
) -> None:
    servicer, target = failing
    servicer.breaks = list(breaks)
    count = 14 * PER_MESSAGE
    states: list[int] = []
    with open_client(target) as client:
        inputs = (TextInput("x" * n) for n in range(count))
        results = client.embed_stream(inputs, progress=lambda state: states.append(state.done))
        assert [each.vector[0] for each in results] == list(range(count))
    assert servicer.calls == len(breaks) + 1
    assert states == sorted(states)
    assert states[-1] == count


def test_a_stream_that_never_gets_on_ends(open_client: Callable[..., Any], failing: tuple[FailingServer, str]) -> None:
    servicer, target = failing
    for breaks, calls in (([0] * 10, 4), ([2, *[0] * 10], 5)):
        servicer.breaks, servicer.calls = breaks, 0
        with open_client(target, attempts=4) as client, pytest.raises(TwinlensError) as caught:
            list(client.embed_stream(TextInput("x") for _ in range(200)))
        assert caught.value.code == "UNAVAILABLE"
        assert servicer.calls <= calls


def test_a_stream_outlives_its_server(open_client: Callable[..., Any], tmp_path: Path) -> None:
    target = f"unix:{tmp_path}/socket"
    first, second, ended = failing_server(), failing_server(), threading.Event()
    first.breaks = [3, *[0] * 10]

    def serve_twice() -> None:
        with serving(first, target):
            first.broke.wait(20)
        with serving(second, target):
            ended.wait(20)

    thread = threading.Thread(target=serve_twice)
    thread.start()
    try:
        count = 8 * PER_MESSAGE
        with open_client(target) as client:
            client.wait_ready()
            results = client.embed_stream(TextInput("x" * n) for n in range(count))
            assert [each.vector[0] for each in results] == list(range(count))
    finally:
        ended.set()
        thread.join()
    assert second.calls == 1


def test_what_the_callers_iterable_raises_comes_after_the_answers_before_it(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str]
) -> None:
    _, target = failing

    def inputs() -> Iterator[TextInput]:
        yield from (TextInput("x" * n) for n in range(3 * PER_MESSAGE))
        raise KeyError("mine")

    with open_client(target) as client, pytest.raises(KeyError, match="mine"):
        list(client.embed_stream(inputs()))


def test_other_failures_end_a_stream_at_once(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str]
) -> None:
    _, target = failing
    with open_client(target) as client, pytest.raises(TwinlensError) as caught:
        list(client.classify_stream([b"x"], ["a"]))
    assert caught.value.code == "UNIMPLEMENTED"
