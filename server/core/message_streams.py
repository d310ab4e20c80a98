"""Answers to streams of messages: in order, a few messages in work at a time, and never more than a few inside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from twinlens.server.core.errors import Code, ServiceError

M = TypeVar("M")
A = TypeVar("A")

_RETRY_AFTER_S = 1.0


class MessageStreams:
    """Works on streams whose every message is answered by one, in the memory of a few messages however long they are.

    Args:
        draining: Set when the server is about to end: from then on nothing more is read.
        window: Messages of one stream that are inside at a time: from their reading until the answer was taken. A
            message is read only when there is room for it, so a caller who does not read answers is not read from.
        at_once: Messages in work at a time, of all streams together, in the order in which they came.
    """

    def __init__(self, draining: asyncio.Event, *, window: int = 4, at_once: int = 8) -> None:
        self._draining = draining
        self._window = window
        self._places = asyncio.Semaphore(at_once)
        self._at_work = 0

    @property
    def at_work(self) -> int:
        """Messages in work now, of all streams."""
        return self._at_work

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Waits for, and holds, one of the places for messages in work."""
        async with self._places:
            self._at_work += 1
            try:
                yield
            finally:
                self._at_work -= 1

    async def first(self, messages: AsyncIterator[M]) -> M | None:
        """The first message of a stream, whose others are for `answers`; None where there is none.

        Raises:
            ServiceError: UNAVAILABLE where the server ends before it comes.
        """
        message = await self._next(messages)
        return None if message is None else message[0]

    async def answers(
        self, messages: AsyncIterator[M], work: Callable[[M], Coroutine[Any, Any, A]]
    ) -> AsyncGenerator[A, None]:
        """The answers, in the order of the messages; each is given as soon as those before it are.

        What `work` or reading raises is raised in its turn, after the answers before it. Closing the generator stops
        what is in work, but not a reading that is under way: what gRPC reads into cannot be taken from it. That ends
        with the call.

        Args:
            messages: The stream.
            work: Answers one message.

        Raises:
            ServiceError: UNAVAILABLE where the server ends before the stream does; what was read is answered before.
        """
        room = asyncio.Semaphore(self._window)
        begun: asyncio.Queue[asyncio.Task[A] | None] = asyncio.Queue()
        running: set[asyncio.Task[A]] = set()

        async def in_its_place(message: M) -> A:
            async with self.place():
                return await work(message)

        async def read() -> None:
            try:
                while True:
                    await room.acquire()
                    message = await self._next(messages)
                    if message is None:
                        return
                    task = asyncio.create_task(in_its_place(message[0]))
                    running.add(task)
                    task.add_done_callback(running.discard)
                    task.add_done_callback(_forget)
                    begun.put_nowait(task)
                    del message  # messages are large: do not hold one while waiting for the next
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


async def placed(messages: AsyncIterator[M], count: Callable[[M], int]) -> AsyncIterator[tuple[int, M]]:
    """Messages with the position of the first of their entries in the whole stream, from 0."""
    position = 0
    async for message in messages:
        yield position, message
        position += count(message)


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
