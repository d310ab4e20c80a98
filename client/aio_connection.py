"""What carries the calls of an asynchronous client; see `connection`, which is the same without an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any, Self, TypeVar

import grpc.aio
from google.protobuf.message import Message

from twinlens.client import calls, operation_calls
from twinlens.client.channel import TIMEOUT_S, WRITE_TIMEOUT_S, ChannelOptions, check_target, open_aio_channel
from twinlens.client.collection_types import OperationProgress, ShowProgress
from twinlens.client.errors import TwinlensError, closed, from_call
from twinlens.client.limits import NOT_TOLD, NOT_TOLD_CODES, AskLimits, Told, are_outdated
from twinlens.client.readiness import HEALTH_CHECK, LAST_CALL_S, READY_PAUSE_S, has_answered, not_there
from twinlens.client.resending import Unanswered
from twinlens.client.retries import ATTEMPTS, AWAY_S, Attempts, is_of_writing
from twinlens.client.stubs import stubs
from twinlens.client.tls import TlsFiles
from twinlens.client.token import call_metadata

R = TypeVar("R")


class AsyncConnection:
    """A channel to one server: opened with the first call, shared by all, and opened again when it broke."""

    def __init__(
        self,
        target: str,
        *,
        token: str | None = None,
        tls: TlsFiles | None = None,
        timeout_s: float | None = TIMEOUT_S,
        write_timeout_s: float | None = WRITE_TIMEOUT_S,
        wait_for_ready: bool = False,
        attempts: int = ATTEMPTS,
        options: ChannelOptions = (),
    ) -> None:
        self.target = check_target(target)
        self._metadata = call_metadata(token, self.target, encrypted=tls is not None)
        self._timeout_s = timeout_s
        self._write_timeout_s = write_timeout_s
        self._wait_for_ready = wait_for_ready
        self._attempts = attempts
        self._told: Told | None = None
        self._channel = open_aio_channel(self.target, tls, options)
        self._stubs = stubs(self._channel)
        self._check: Any = self._channel.unary_unary(HEALTH_CHECK)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; calls still running fail.

        Example:
            >>> other = AsyncClient(client.target)
            >>> await other.close()
        """
        await self._channel.close()

    async def wait_ready(self, timeout_s: float = 10.0) -> None:
        """Waits until the server takes connections.

        Raises:
            TwinlensError: UNAVAILABLE if it does not within `timeout_s` seconds.

        Example:
            >>> await client.wait_ready(timeout_s=30)
        """
        end_s = time.monotonic() + timeout_s
        while True:
            left_s = end_s - time.monotonic()
            try:
                await self._check(
                    b"",
                    timeout=left_s if left_s > 0 else LAST_CALL_S,
                    wait_for_ready=left_s > 0,
                    metadata=self._metadata,
                )
                return
            except grpc.aio.AioRpcError as error:
                if has_answered(error):
                    return
                if left_s <= 0:
                    raise not_there(self.target, timeout_s, error) from None
            except grpc.aio.UsageError:
                raise closed() from None
            await asyncio.sleep(READY_PAUSE_S)

    async def _pages(self, page: Callable[[str], calls.Plan[tuple[list[R], str]]]) -> AsyncIterator[R]:
        token = ""
        while True:
            values, token = await self._run(page(token))
            for value in values:
                yield value
            if not token:
                return

    async def _run(self, plan: calls.Plan[R], progress: ShowProgress | None = None) -> R:
        response: Any = None
        while True:
            step, result = await asyncio.to_thread(_advance, plan, response)
            if step is None:
                return result  # type: ignore[return-value]  # a finished plan has a result
            response = None
            if isinstance(step, AskLimits):
                response = await self._limits()
            elif not isinstance(step, OperationProgress):
                response = await self._answer(step)
            elif progress is not None:
                progress(step)

    async def _limits(self) -> Told:
        if self._told is None:
            try:
                self._told = await self._answer(calls.LIMITS)
            except TwinlensError as error:
                if error.code not in NOT_TOLD_CODES:
                    raise
                self._told = NOT_TOLD
        return self._told

    async def _stream(self, stream: operation_calls.Stream, progress: ShowProgress | None) -> AsyncIterator[object]:
        attempts = Attempts(stream.call, None, self._attempts)
        ended = False
        while not ended:
            answer: Any = None
            try:
                answer = self._begin(stream.call, attempts.begin())
                async for message in answer:
                    attempts.answered()
                    for value in stream.read(message):
                        if not isinstance(value, OperationProgress):
                            yield value
                        elif progress is not None:
                            progress(value)
                ended = True
            except grpc.aio.AioRpcError as error:
                await self._pause(attempts, error, None)
            except grpc.aio.UsageError:  # what grpc raises on a closed channel
                raise closed() from None
            finally:
                if answer is not None:
                    answer.cancel()

    async def _exchange(
        self, service: calls.Service, method: str, requests: Iterator[Message], *, opening: int = 0
    ) -> AsyncGenerator[Any, None]:
        """Sends messages and yields their answers; see `Connection._exchange`. Messages are made in threads."""
        unanswered = Unanswered(requests, opening)
        attempts = Attempts(calls.Call(service, method, ()), None, self._attempts)
        ended = False
        while not ended:
            attempts.begin()
            answer: Any = None
            go_on = asyncio.Event()
            try:
                answer = getattr(self._stubs[service], method)(
                    _in_threads(unanswered.begin(), go_on), wait_for_ready=self._wait_for_ready, metadata=self._metadata
                )
                async for message in answer:
                    go_on.set()
                    if unanswered.answered():
                        attempts.got_on()
                        yield message
                ended = True
            except grpc.aio.AioRpcError as error:
                ended = unanswered.broken is not None
                if not ended:
                    await self._pause(attempts, error, None)
                    if attempts.has_got_on:
                        await self.wait_ready(AWAY_S)
            except grpc.aio.UsageError:
                raise closed() from None
            finally:
                unanswered.end()
                go_on.set()
                if answer is not None:
                    answer.cancel()
        if unanswered.broken is not None:
            raise unanswered.broken

    async def _answer(self, call: calls.Call) -> Any:
        timeout_s = None if call.long else self._write_timeout_s if call.writes else self._timeout_s
        attempts = Attempts(call, timeout_s, self._attempts)
        while True:
            left_s = attempts.begin()
            try:
                return await self._begin(call, left_s)
            except grpc.aio.AioRpcError as error:
                await self._pause(attempts, await self._told_by_server(call, error, left_s), timeout_s)
            except grpc.aio.UsageError:
                raise closed() from None

    async def _told_by_server(
        self, call: calls.Call, error: grpc.aio.AioRpcError, left_s: float | None
    ) -> grpc.aio.AioRpcError:
        """What a server has against a stream of requests, where grpc.aio hides it: asked with the first one alone."""
        if not is_of_writing(error.code(), error.details()) or not isinstance(call.request, tuple):
            return error
        try:
            await self._begin(replace(call, request=call.request[:1]), left_s)
        except grpc.aio.AioRpcError as told:
            return told
        return error

    def _begin(self, call: calls.Call, timeout_s: float | None) -> Any:
        method = getattr(self._stubs[call.service], call.method)
        request = iter(call.request) if isinstance(call.request, tuple) else call.request
        return method(request, timeout=timeout_s, wait_for_ready=self._wait_for_ready, metadata=self._metadata)

    async def _pause(self, attempts: Attempts, error: grpc.aio.AioRpcError, timeout_s: float | None) -> None:
        """Waits for the next attempt; raises the error where there is none."""
        failure = self._failed(error, timeout_s)
        pause_s = attempts.pause_s(error)
        if pause_s is None:
            raise failure from None
        await asyncio.sleep(pause_s)

    def _failed(self, error: grpc.aio.AioRpcError, timeout_s: float | None) -> TwinlensError:
        if are_outdated(error):
            self._told = None
        return from_call(error, self.target, timeout_s)


def _advance(plan: calls.Plan[R], response: Any) -> tuple[calls.Call | AskLimits | OperationProgress | None, R | None]:
    """The next step, or None and the result; a StopIteration could not leave a thread."""
    try:
        return plan.send(response), None
    except StopIteration as stop:
        return None, stop.value


async def _in_threads(messages: Iterator[Message], go_on: asyncio.Event) -> AsyncIterator[Message]:
    """Messages whose making may read files, or wait; none after the first until it may go on."""
    while (message := await asyncio.to_thread(next, messages, None)) is not None:
        yield message
        # grpc.aio tells of a call that a server refuses while more is being sent as INTERNAL, whatever the server said
        # (grpc issue 36066). So the first message waits for its answer, or for what the server has against it.
        await go_on.wait()
