"""The one place where calls get their id and failures become gRPC statuses."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from twinlens.index.errors import CollectionError
from twinlens.printable import printable
from twinlens.server.core.call import current_call, set_current_call
from twinlens.server.core.errors import Code, ServiceError, as_service_error, internal, invalid_argument
from twinlens.server.services.call_places import CallPlaces
from twinlens.server.services.reply_room import too_large
from twinlens.server.services.status import retry_hint

log = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_OURS = "/twinlens."
# Statuses travel percent-encoded as metadata, of which gRPC takes 8 KiB in all: beyond it callers would be told of that
# and of nothing else.
_MOST_MESSAGE_BYTES = 2000
# Whoever leaves a streamed answer unread for so long loses it: its work holds one of a few places.
_STALL_S = 600.0

_STATUS = {
    Code.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    Code.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Code.FAILED_PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    Code.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Code.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Code.RESOURCE_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    Code.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Code.UNIMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    Code.DATA_LOSS: grpc.StatusCode.DATA_LOSS,
    Code.INTERNAL: grpc.StatusCode.INTERNAL,
}

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # not generic at run time


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Gives every call an id and a deadline, and maps what it raises.

    Args:
        max_reply_bytes: Larger replies are refused.
        places: For calls that run at a time.
    """

    def __init__(self, max_reply_bytes: int, places: CallPlaces) -> None:
        self._max_reply_bytes = max_reply_bytes
        self._places = places

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps all methods. Those of health and reflection take no place from others."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            return handler
        offered = dict(handler_call_details.invocation_metadata).get(REQUEST_ID, "")
        request_id = offered if isinstance(offered, str) and _SANE_ID.fullmatch(offered) else uuid.uuid4().hex
        # Bytes are parsed inside the guard: gRPC itself would send the parser's own words to the caller.
        parse = _parser(handler.request_deserializer)
        encode = handler.response_serializer
        if handler.unary_unary is not None:
            answer = self._answered(handler.unary_unary, parse, method, request_id)
            return grpc.unary_unary_rpc_method_handler(answer, None, encode)
        if handler.stream_unary is not None:
            answer = self._answered(handler.stream_unary, lambda raw: _parsed(raw, parse), method, request_id)
            return grpc.stream_unary_rpc_method_handler(answer, None, encode)
        if handler.unary_stream is not None:
            answers = self._streamed(handler.unary_stream, parse, method, request_id)
            return grpc.unary_stream_rpc_method_handler(answers, None, encode)
        both_ways: Callable[..., Any] = handler.stream_stream  # type: ignore[assignment]  # there is no fifth kind
        answers = self._streamed(both_ways, lambda raw: _parsed(raw, parse), method, request_id)
        return grpc.stream_stream_rpc_method_handler(answers, None, encode)

    def _place(self, method: str) -> AbstractContextManager[None]:
        return self._places.one() if method.startswith(_OURS) else nullcontext()

    def _answered(
        self, behaviour: Callable[..., Any], parse: Callable[[Any], Any], method: str, request_id: str
    ) -> Callable[..., Any]:
        async def answer(request: Any, context: Context) -> object:
            async with _guarded(method, request_id, context, self._place(method)):
                reply = await behaviour(parse(request), context)
                if reply.ByteSize() > self._max_reply_bytes:
                    raise too_large(self._max_reply_bytes)
                return reply

        return answer

    def _streamed(
        self, behaviour: Callable[..., Any], parse: Callable[[Any], Any], method: str, request_id: str
    ) -> Callable[..., Any]:
        async def answer(request: Any, context: Context) -> None:
            # Written from here, not yielded: gRPC would leave the generator of a caller who hung up to the collector of
            # garbage, and with it the work behind it.
            async with (
                _guarded(method, request_id, context, self._place(method)),
                aclosing(behaviour(parse(request), context)) as replies,
            ):
                async for reply in replies:
                    if reply.ByteSize() > self._max_reply_bytes:
                        raise too_large(self._max_reply_bytes)
                    await _write(context, reply)

        return answer


async def _write(context: Context, reply: object) -> None:
    try:
        async with asyncio.timeout(_STALL_S):
            await context.write(reply)
    except grpc.aio.InternalError:  # the caller hung up while it was on its way: no fault, and nobody to tell
        raise asyncio.CancelledError from None
    except TimeoutError:
        raise ServiceError(
            Code.DEADLINE_EXCEEDED, f"nothing of the answer was read for {_STALL_S:g} s, so it was ended"
        ) from None


def _parser(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    def parse(raw: bytes) -> object:
        try:
            return raw if deserialize is None else deserialize(raw)
        except DecodeError:
            raise invalid_argument("the bytes are not a message of this method") from None

    return parse


async def _parsed(raw: AsyncIterator[bytes], parse: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    async for message in raw:
        yield parse(message)


@asynccontextmanager
async def _guarded(
    method: str, request_id: str, context: Context, place: AbstractContextManager[None]
) -> AsyncIterator[None]:
    left_s: float | None = context.time_remaining()  # the stubs leave out that there may be no deadline
    deadline_s = None if left_s is None else asyncio.get_running_loop().time() + left_s
    # What others before this one noted of the call stays.
    set_current_call(replace(current_call(), request_id=request_id, deadline_s=deadline_s))
    metadata: list[tuple[str, str | bytes]] = [(REQUEST_ID, request_id)]
    try:
        context.set_trailing_metadata(tuple(metadata))
        with place:
            yield
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        failure = _failure(error, method, request_id)
        code, message = _STATUS[failure.code], _one_line(failure.message)
        if failure.retry_after_s is not None:
            metadata += retry_hint(code, message, failure.retry_after_s)
            context.set_trailing_metadata(tuple(metadata))
        await context.abort(code, message)


def _one_line(message: str) -> str:
    """What may hold parts of the request, however long these are and whatever is in them."""
    shown = printable(message[:_MOST_MESSAGE_BYTES]).encode()
    if len(shown) <= _MOST_MESSAGE_BYTES >= len(message):
        return shown.decode()
    return shown[: _MOST_MESSAGE_BYTES - len("…".encode())].decode(errors="ignore") + "…"


def _failure(error: Exception, method: str, request_id: str) -> ServiceError:
    failure = as_service_error(error)
    if failure is None:
        log.error("%s request %s failed", method, request_id, exc_info=error)
        return internal(request_id)
    if isinstance(error, CollectionError | ServiceError) and failure.code in {Code.INTERNAL, Code.DATA_LOSS}:
        # It says in a line what is wrong, a full disk or a file that is damaged; it is ours only in passing.
        log.error("%s request %s failed: %s", method, request_id, error)
        log.debug("%s request %s came to that by", method, request_id, exc_info=error)
    elif failure.code in {Code.INTERNAL, Code.DATA_LOSS}:
        log.error("%s request %s failed: %s", method, request_id, failure.message, exc_info=error)
    elif failure.code is Code.INVALID_ARGUMENT:
        # The message may repeat what was sent, such as a label or a filter: the caller has it, the log is not to.
        log.info("%s request %s refused: %s", method, request_id, failure.code)
    else:
        log.info("%s request %s refused: %s: %s", method, request_id, failure.code, failure.message)
    return failure
