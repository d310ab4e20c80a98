"""Answers to streams of messages: in order, a few messages in work at a time, and never more than a few inside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.weighed_room import WeighedRoom

M = TypeVar("M")
A = TypeVar("A")

_RETRY_AFTER_S = 1.0
_ENTRY_BYTES = 4096


class MessageStreams:
    """Works on streams whose every message is answered by one, in the memory of a few messages however long they are.

    Args:
        draining: Set when the server is about to end: from then on nothing more is read.
        most_at_work: What the messages in work may weigh, of all streams together. They get room in the order in which
            they came; what waits for other servers, and is small, so keeps nobody from working.
        window: Messages of one stream that are inside at a time: from their reading until the answer was taken. A
            message is read only when there is room for it, so a caller who does not read answers is not read from, and
            when those before it are in work, so that a stream which waits for that holds one.
    """

    def __init__(self, draining: asyncio.Event, most_at_work: int, *, window: int = 4) -> None:
        self._draining = draining
        self._window = window
        self._room = WeighedRoom(most_at_work)

    @property
    def at_work(self) -> int:
        """What the messages in work weigh now, of all streams."""
        return self._room.held

    def place(self, weight: int) -> AbstractAsyncContextManager[None]:
        """Waits for, and holds, room for a message in work."""
        return self._room.hold(weight)

    async def first(self, messages: AsyncIterator[M]) -> M | None:
        """The first message of a stream, whose others are for `answers`; None where there is none.

        Raises:
            ServiceError: UNAVAILABLE where the server ends before it comes.
        """
        message = await self._next(messages)
        return None if message is None else message[0]

    async def answers(
        self,
        messages: AsyncIterator[M],
        work: Callable[[M], Coroutine[Any, Any, A]],
        weigh: Callable[[M], int],
    ) -> AsyncGenerator[A, None]:
        """The answers, in the order of the messages; each is given as soon as those before it are.

        What `work` or reading raises is raised in its turn, after the answers before it. Closing the generator stops
        what is in work, but not a reading that is under way: what gRPC reads into cannot be taken from it. That ends
        with the call.

        Args:
            messages: The stream.
            work: Answers one message.
            weigh: What a message weighs while it is in work.

        Raises:
            ServiceError: UNAVAILABLE where the server ends before the stream does; what was read is answered before.
        """
        room = asyncio.Semaphore(self._window)
        begun: asyncio.Queue[asyncio.Task[A] | None] = asyncio.Queue()
        running: set[asyncio.Task[A]] = set()

        async def in_its_place(message: M, at_work: asyncio.Event) -> A:
            async with self.place(weigh(message)):
                at_work.set()
                return await work(message)

        async def read() -> None:
            try:
                while True:
                    await room.acquire()
                    message = await self._next(messages)
                    if message is None:
                        return
                    at_work = asyncio.Event()
                    task = asyncio.create_task(in_its_place(message[0], at_work))
                    running.add(task)
                    task.add_done_callback(running.discard)
                    task.add_done_callback(_forget)
                    begun.put_nowait(task)
                    del message  # messages are large: do not hold one while waiting for the next
                    await at_work.wait()  # what fails before it is, ends the stream, and this
            finally:
                begun.put_nowait(None)

        reading = asyncio.create_task(read())
        try:
            while (task := await begun.get()) is not None:
                yield await task
                room.release()
            await reading  # raises what it raised
        finally:
            stopped = [reading, *running]
            for each in stopped:
                each.cancel()
            await asyncio.gather(*stopped, return_exceptions=True)

    async def _next(self, messages: AsyncIterator[M]) -> tuple[M] | None:
        """The next message, None at the end of the stream; the reading of one goes on when whoever waits is stopped."""
        if self._draining.is_set():
            raise _stopping()
        following = asyncio.create_task(_following(messages))
        following.add_done_callback(_forget)
        draining = asyncio.create_task(self._draining.wait())
        try:
            await asyncio.wait((following, draining), return_when=asyncio.FIRST_COMPLETED)
        finally:
            draining.cancel()
        if not following.done():
            raise _stopping()
        return following.result()


@dataclass(frozen=True, slots=True)
class Placed(Generic[M]):
    """A message, and the position of the first of its entries in the whole stream, from 0."""

    position: int
    message: M
    count: int


async def placed(messages: AsyncIterator[M], count: Callable[[M], int]) -> AsyncIterator[Placed[M]]:
    """Messages with their positions; `count` tells how many entries one has."""
    position = 0
    async for message in messages:
        entries = count(message)
        yield Placed(position, message, entries)
        position += entries


def weight(message: Message, entries: int) -> int:
    """What a message of so many entries weighs, in bytes: as it was sent, and what keeping account of each takes."""
    return message.ByteSize() + _ENTRY_BYTES * entries


async def _following(messages: AsyncIterator[M]) -> tuple[M] | None:
    """The next message; None at the end, for a StopAsyncIteration could not leave a task."""
    async for message in messages:
        return (message,)
    return None


def _stopping() -> ServiceError:
    message = "the server is stopping; what it answered is done, send the rest again"
    return ServiceError(Code.UNAVAILABLE, message, retry_after_s=_RETRY_AFTER_S)


def _forget(task: asyncio.Task[Any]) -> None:
    """Whoever waited for it raises what it raised, or is gone."""
    if not task.cancelled():
        task.exception()
