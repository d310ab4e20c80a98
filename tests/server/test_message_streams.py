"""Streams of messages: answered in order, flow-controlled, in the memory of a few messages."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from tests.server.watched import PATIENCE_S, until
from twinlens.server.core.errors import Code, ServiceError, invalid_argument
from twinlens.server.core.message_streams import MessageStreams, placed


class Source:
    """Messages 0, 1, 2 …, which notes how many were taken."""

    def __init__(self, count: int) -> None:
        self.taken = 0
        self._count = count

    async def __aiter__(self) -> AsyncIterator[int]:
        for number in range(self._count):
            self.taken += 1
            yield number


class Gates:
    """Work that waits until it is told to end, a message at a time."""

    def __init__(self) -> None:
        self.inside: list[int] = []
        self.most = 0
        self.stopped: list[int] = []
        self._open: dict[int, asyncio.Event] = {}

    def open(self, *numbers: int) -> None:
        for number in numbers:
            self._gate(number).set()

    async def work(self, number: int) -> str:
        self.inside.append(number)
        self.most = max(self.most, len(self.inside))
        try:
            await self._gate(number).wait()
        except asyncio.CancelledError:
            self.stopped.append(number)
            raise
        finally:
            self.inside.remove(number)
        return f"answer {number}"

    def _gate(self, number: int) -> asyncio.Event:
        return self._open.setdefault(number, asyncio.Event())


def streams(**options: int) -> MessageStreams:
    return MessageStreams(asyncio.Event(), options.pop("most_at_work", 1000), **options)


def one(message: object) -> int:
    """What a message weighs."""
    del message
    return 1


async def settle() -> None:
    """Lets everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_answers_come_in_the_order_of_the_messages_whichever_is_done_first() -> None:
    gates = Gates()
    async with aclosing(streams().answers(aiter(Source(4)), gates.work, one)) as answers:
        first = asyncio.create_task(anext(answers))
        await until(lambda: len(gates.inside) == 4)
        gates.open(3, 2, 1)
        await settle()
        assert not first.done()
        gates.open(0)
        assert [await first, *[answer async for answer in answers]] == [f"answer {i}" for i in range(4)]


async def test_a_message_is_answered_before_the_next_one_is_sent() -> None:
    asked: asyncio.Queue[int | None] = asyncio.Queue()

    async def messages() -> AsyncIterator[int]:
        while (number := await asked.get()) is not None:
            yield number

    async def work(number: int) -> int:
        return -number

    async with aclosing(streams().answers(messages(), work, one)) as answers:
        for number in range(10):
            asked.put_nowait(number)
            assert await anext(answers) == -number
        asked.put_nowait(None)
        assert [answer async for answer in answers] == []


async def test_nothing_is_read_for_which_there_is_no_room() -> None:
    source, gates = Source(100), Gates()
    gates.open(*range(100))
    async with aclosing(streams(window=3).answers(aiter(source), gates.work, one)) as answers:
        for taken in range(20):
            assert await anext(answers) == f"answer {taken}"
            await settle()
            # The answer just taken makes room when the next one is asked for.
            assert source.taken == taken + 3


async def test_streams_share_a_few_places_to_work_in_and_each_gets_its_turn() -> None:
    gates, both = Gates(), streams(window=4, most_at_work=3)

    async def all_of(source: Source) -> list[str]:
        return [answer async for answer in both.answers(aiter(source), gates.work, one)]

    tasks = [asyncio.create_task(all_of(Source(6))) for _ in range(3)]
    await until(lambda: len(gates.inside) == 3)
    gates.open(*range(6))
    for task in tasks:
        assert await task == [f"answer {i}" for i in range(6)]
    assert gates.most == 3


async def test_a_message_that_fails_fails_the_stream_behind_the_answers_before_it() -> None:
    async def work(number: int) -> int:
        if number == 2:
            raise invalid_argument("no")
        return number

    answered = []
    with pytest.raises(ServiceError, match="no"):  # noqa: PT012 - what was answered before is of interest
        async for answer in streams().answers(aiter(Source(9)), work, one):
            answered.append(answer)  # noqa: PERF401 - kept when it fails
    assert answered == [0, 1]


async def test_what_reading_raises_comes_behind_the_answers_to_what_was_read() -> None:
    async def messages() -> AsyncIterator[int]:
        yield 1
        raise invalid_argument("not a message")

    async def work(number: int) -> int:
        await settle()
        return number

    answered = []
    with pytest.raises(ServiceError, match="not a message"):  # noqa: PT012 - as above
        async for answer in streams().answers(messages(), work, one):
            answered.append(answer)  # noqa: PERF401 - as above
    assert answered == [1]


async def test_a_caller_who_goes_away_stops_the_work() -> None:
    gates, source = Gates(), Source(100)
    answers = streams(window=3).answers(aiter(source), gates.work, one)
    gates.open(0)
    assert await anext(answers) == "answer 0"
    await until(lambda: len(gates.inside) == 2)
    await answers.aclose()
    assert sorted(gates.stopped) == [1, 2]
    assert not gates.inside


async def test_a_reading_that_is_under_way_is_left_to_end_by_itself() -> None:
    read, stopped = asyncio.Event(), []

    async def messages() -> AsyncIterator[int]:
        yield 0
        try:
            await read.wait()
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    async def work(number: int) -> int:
        return number

    answers = streams().answers(messages(), work, one)
    assert await anext(answers) == 0
    await settle()
    await asyncio.wait_for(answers.aclose(), PATIENCE_S)
    read.set()
    await settle()
    assert not stopped


async def test_a_server_that_stops_reads_no_further_and_answers_what_it_read() -> None:
    draining, gates, source = asyncio.Event(), Gates(), Source(100)
    answers = MessageStreams(draining, 1000, window=3).answers(aiter(source), gates.work, one)
    gates.open(0)
    assert await anext(answers) == "answer 0"
    await until(lambda: len(gates.inside) == 2)
    draining.set()
    gates.open(*range(100))
    answered = []
    with pytest.raises(ServiceError, match="stopping") as ended:  # noqa: PT012 - as above
        async for answer in answers:
            answered.append(answer)  # noqa: PERF401 - as above
    assert ended.value.code is Code.UNAVAILABLE
    assert answered == [f"answer {i}" for i in range(1, source.taken)]
    assert source.taken <= 4


async def test_a_server_that_stops_ends_a_stream_whose_caller_says_nothing() -> None:
    draining = asyncio.Event()

    async def messages() -> AsyncIterator[int]:
        await asyncio.Event().wait()
        yield 0

    async def work(number: int) -> int:
        return number

    answers = MessageStreams(draining, 1000).answers(messages(), work, one)
    waiting = asyncio.create_task(anext(answers))
    await settle()
    draining.set()
    with pytest.raises(ServiceError, match="stopping"):
        await waiting


async def test_the_first_message_is_taken_from_the_stream_and_no_more() -> None:
    source, gates = Source(3), Gates()
    gates.open(1, 2)
    messages = aiter(source)
    assert await streams().first(messages) == 0
    assert source.taken == 1
    assert [answer async for answer in streams().answers(messages, gates.work, one)] == ["answer 1", "answer 2"]
    assert await streams().first(messages) is None


async def test_a_server_that_stops_waits_for_no_first_message() -> None:
    draining = asyncio.Event()

    async def messages() -> AsyncIterator[int]:
        await asyncio.Event().wait()
        yield 0

    waiting = asyncio.create_task(MessageStreams(draining, 1000).first(messages()))
    await settle()
    draining.set()
    with pytest.raises(ServiceError, match="stopping"):
        await waiting


async def test_a_stream_that_was_read_to_its_end_ends_well_though_the_server_stops() -> None:
    draining, gates = asyncio.Event(), Gates()
    answers = MessageStreams(draining, 1000).answers(aiter(Source(2)), gates.work, one)
    first = asyncio.create_task(anext(answers))
    await until(lambda: len(gates.inside) == 2)
    await settle()
    draining.set()
    gates.open(0, 1)
    assert [await first, *[answer async for answer in answers]] == ["answer 0", "answer 1"]


class Weighed:
    """A message that can be counted while anybody holds it."""


async def test_however_long_a_stream_is_only_a_few_of_its_messages_are_held() -> None:
    alive: weakref.WeakSet[Weighed] = weakref.WeakSet()

    async def messages() -> AsyncIterator[Weighed]:
        for _ in range(500):
            message = Weighed()
            alive.add(message)
            yield message
            del message

    async def work(message: Weighed) -> None:
        del message
        await asyncio.sleep(0)

    most = 0
    async for _ in streams(window=4).answers(messages(), work, one):
        gc.collect(0)
        most = max(most, len(alive))
    assert most <= 4


async def test_a_stream_that_waits_for_its_caller_holds_nothing_that_is_answered() -> None:
    alive: weakref.WeakSet[Weighed] = weakref.WeakSet()

    async def messages() -> AsyncIterator[Weighed]:
        message = Weighed()
        alive.add(message)
        yield message
        del message
        await asyncio.Event().wait()

    async def work(message: Weighed) -> None:
        del message

    async with aclosing(streams().answers(messages(), work, one)) as answers:
        await anext(answers)
        await settle()
        gc.collect()
        assert not alive


async def test_positions_count_on_over_messages() -> None:
    async def messages() -> AsyncIterator[str]:
        for text in ("abc", "", "de"):
            yield text

    found = [(each.position, each.message, each.count) async for each in placed(messages(), len)]
    assert found == [(0, "abc", 3), (3, "", 0), (3, "de", 2)]
