"""What carries the calls of a blocking client: its channel, deadlines, attempts, and what its errors say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, Self, TypeVar

import grpc
from google.protobuf.message import Message

from twinlens.client import calls, operation_calls
from twinlens.client.channel import TIMEOUT_S, WRITE_TIMEOUT_S, ChannelOptions, check_target, open_channel
from twinlens.client.collection_types import OperationProgress, ShowProgress
from twinlens.client.errors import TwinlensError, closed, from_call
from twinlens.client.limits import NOT_TOLD, NOT_TOLD_CODES, AskLimits, Told, are_outdated
from twinlens.client.readiness import HEALTH_CHECK, LAST_CALL_S, READY_PAUSE_S, has_answered, not_there
from twinlens.client.resending import Unanswered
from twinlens.client.retries import ATTEMPTS, AWAY_S, Attempts
from twinlens.client.stubs import stubs
from twinlens.client.tls import TlsFiles
from twinlens.client.token import call_metadata

R = TypeVar("R")


class Connection:
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
        self._closed = threading.Event()
        self._channel = open_channel(self.target, tls, options)
        self._stubs = stubs(self._channel)
        self._check: Any = self._channel.unary_unary(HEALTH_CHECK)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; calls still running fail.

        Example:
            >>> other = Client(client.target)
            >>> other.close()
        """
        self._closed.set()
        self._channel.close()

    def wait_ready(self, timeout_s: float = 10.0) -> None:
        """Waits until the server takes connections.

        Raises:
            TwinlensError: UNAVAILABLE if it does not within `timeout_s` seconds.

        Example:
            >>> client.wait_ready(timeout_s=30)
        """
        end_s = time.monotonic() + timeout_s
        while True:
            left_s = end_s - time.monotonic()
            try:
                self._check(
                    b"",
                    timeout=left_s if left_s > 0 else LAST_CALL_S,
                    wait_for_ready=left_s > 0,
                    metadata=self._metadata,
                )
                return
            except grpc.RpcError as error:
                if has_answered(error):
                    return
                if left_s <= 0:
                    raise not_there(self.target, timeout_s, error) from None
            except ValueError:
                raise closed() from None
            if self._closed.wait(READY_PAUSE_S):
                raise closed() from None

    def _pages(self, page: Callable[[str], calls.Plan[tuple[list[R], str]]]) -> Iterator[R]:
        token = ""
        while True:
            values, token = self._run(page(token))
            yield from values
            if not token:
                return

    def _run(self, plan: calls.Plan[R], progress: ShowProgress | None = None) -> R:
        response: Any = None
        while True:
            try:
                step = plan.send(response)
            except StopIteration as stop:
                result: R = stop.value
                return result
            response = None
            if isinstance(step, AskLimits):
                response = self._limits()
            elif not isinstance(step, OperationProgress):
                response = self._answer(step)
            elif progress is not None:
                progress(step)

    def _limits(self) -> Told:
        if self._told is None:
            try:
                self._told = self._answer(calls.LIMITS)
            except TwinlensError as error:
                if error.code not in NOT_TOLD_CODES:
                    raise
                self._told = NOT_TOLD
        return self._told

    def _stream(self, stream: operation_calls.Stream, progress: ShowProgress | None) -> Iterator[object]:
        attempts = Attempts(stream.call, None, self._attempts)
        ended = False
        while not ended:
            answer = self._begin(stream.call, attempts.begin())
            try:
                for message in answer:
                    attempts.answered()
                    for value in stream.read(message):
                        if not isinstance(value, OperationProgress):
                            yield value
                        elif progress is not None:
                            progress(value)
                ended = True
            except grpc.RpcError as error:
                self._pause(attempts, error, None)
            finally:
                answer.cancel()

    def _exchange(
        self, service: calls.Service, method: str, requests: Iterator[Message], *, opening: int = 0
    ) -> Generator[Any, None, None]:
        """Sends messages and yields their answers, one each, as both come; leaving it ends the call.

        A call that breaks off once it has got on is followed by another with what is not answered, when the server is
        back. `requests` is advanced in threads of gRPC's, as the server takes them. What it raises is raised here, once
        what was sent before is answered.

        Args:
            service: Whose method.
            method: Which; it changes nothing.
            requests: What to send.
            opening: How many of the first say what the others are about, and are sent with each call.
        """
        unanswered = Unanswered(requests, opening)
        attempts = Attempts(calls.Call(service, method, ()), None, self._attempts)
        ended = False
        while not ended:
            attempts.begin()
            answer = self._open(service, method, unanswered.begin())
            try:
                for message in answer:
                    if unanswered.answered():
                        attempts.got_on()
                        yield message
                ended = True
            except grpc.RpcError as error:
                ended = unanswered.broken is not None
                if not ended:
                    self._pause(attempts, error, None)
                    if attempts.has_got_on:
                        self.wait_ready(AWAY_S)
            finally:
                unanswered.end()
                answer.cancel()
        if unanswered.broken is not None:
            raise unanswered.broken

    def _open(self, service: calls.Service, method: str, requests: Iterator[Message]) -> Any:
        try:
            return getattr(self._stubs[service], method)(
                requests, wait_for_ready=self._wait_for_ready, metadata=self._metadata
            )
        except ValueError:
            raise closed() from None

    def _answer(self, call: calls.Call) -> Any:
        timeout_s = None if call.long else self._write_timeout_s if call.writes else self._timeout_s
        attempts = Attempts(call, timeout_s, self._attempts)
        while True:
            try:
                return self._begin(call, attempts.begin())
            except grpc.RpcError as error:  # raised errors are calls too, with a code and details
                self._pause(attempts, error, timeout_s)

    def _begin(self, call: calls.Call, timeout_s: float | None) -> Any:
        method = getattr(self._stubs[call.service], call.method)
        request = iter(call.request) if isinstance(call.request, tuple) else call.request
        try:
            return method(request, timeout=timeout_s, wait_for_ready=self._wait_for_ready, metadata=self._metadata)
        except ValueError:  # what grpc raises on a closed channel
            raise closed() from None

    def _pause(self, attempts: Attempts, error: grpc.RpcError, timeout_s: float | None) -> None:
        """Waits for the next attempt; raises the error where there is none."""
        failure = self._failed(error, timeout_s)
        pause_s = attempts.pause_s(error)
        if pause_s is None:
            raise failure from None
        if self._closed.wait(pause_s):
            raise closed() from None

    def _failed(self, error: grpc.RpcError, timeout_s: float | None) -> TwinlensError:
        if are_outdated(error):
            self._told = None
        return from_call(error, self.target, timeout_s)
