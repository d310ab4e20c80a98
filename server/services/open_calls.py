"""Calls that strangers may make of a server that asks everybody else for a token: they take no place from others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import grpc
from prometheus_client import Counter

from twinlens.server.core.errors import Code, ServiceError, invalid_argument
from twinlens.server.services.call_places import CallPlaces
from twinlens.server.services.interceptor import Context, Handler

# Those that last, such as Watch of the health service, and those that do not: whoever keeps the former busy does not
# keep a probe from asking whether the server is healthy.
_LASTING = 1024
_SHORT = 1024
# A call may be begun and its request never sent.
_PATIENCE_S = 5.0


class OpenCalls:
    """Holds a place for a call from its first byte on, and waits for its request for a few seconds only.

    gRPC would wait for it as long as the caller likes, before anything here is asked.

    Args:
        refused: Counts those there is no place for.
    """

    def __init__(self, refused: Counter) -> None:
        self._lasting = CallPlaces(_LASTING, refused)
        self._short = CallPlaces(_SHORT, refused)

    @property
    def most(self) -> int:
        """How many may run at a time."""
        return _LASTING + _SHORT

    def bounded(self, handler: Handler) -> Handler:
        """The handler within its bounds. As one of streams it is begun before a request came."""
        lasting = bool(handler.request_streaming or handler.response_streaming)
        places = self._lasting if lasting else self._short
        replies_to = _replies_to(handler)

        async def answer(requests: AsyncIterator[Any], context: Context) -> AsyncGenerator[Any, None]:
            with places.one():
                request = requests if handler.request_streaming else await _only(requests)
                async with aclosing(replies_to(request, context)) as replies:
                    async for reply in replies:
                        yield reply

        return grpc.stream_stream_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)


def _replies_to(handler: Handler) -> Callable[[Any, Context], AsyncGenerator[Any, None]]:
    if handler.response_streaming:
        streaming: Any = handler.stream_stream if handler.request_streaming else handler.unary_stream
        return streaming  # type: ignore[no-any-return]
    single: Any = handler.stream_unary if handler.request_streaming else handler.unary_unary

    async def replies(request: Any, context: Context) -> AsyncGenerator[Any, None]:
        yield await single(request, context)

    return replies


async def _only(requests: AsyncIterator[Any]) -> Any:
    """The request of a call that has one.

    Raises:
        ServiceError: DEADLINE_EXCEEDED where it does not come, INVALID_ARGUMENT where it never will.
    """
    coming = asyncio.ensure_future(_first(requests))
    coming.add_done_callback(_forget)
    # Not stopped when the time is up: what gRPC reads into cannot be taken from it. That ends with the call.
    await asyncio.wait((coming,), timeout=_PATIENCE_S)
    if not coming.done():
        raise ServiceError(Code.DEADLINE_EXCEEDED, f"no request came within {_PATIENCE_S:g} s")
    if (request := coming.result()) is None:
        raise invalid_argument("the call ended without a request")
    return request


async def _first(requests: AsyncIterator[Any]) -> Any:
    async for request in requests:
        return request
    return None


def _forget(task: asyncio.Task[Any]) -> None:
    """Whoever waited for it raises what it raised, or is gone."""
    if not task.cancelled():
        task.exception()
