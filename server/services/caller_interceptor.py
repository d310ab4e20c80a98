"""Who calls: asked before anything of a call is read, and again for every message of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import grpc

from twinlens.server.access.authority import Authority
from twinlens.server.access.keyring import Holder
from twinlens.server.core.call import current_call, set_current_call
from twinlens.server.services.interceptor import Context, Handler
from twinlens.server.services.open_calls import OpenCalls


class CallerInterceptor(grpc.aio.ServerInterceptor):
    """Admits callers. The innermost interceptor: what it raises becomes a status by those around it.

    Args:
        authority: Knows the callers.
        open_calls: Bounds those of strangers where others need a token.
    """

    def __init__(self, authority: Authority, open_calls: OpenCalls) -> None:
        self._authority = authority
        self._open_calls = open_calls

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps every method, also those that do not exist: a stranger does not learn which do."""
        method = handler_call_details.method
        try:
            holder = self._authority.admit(method, handler_call_details.invocation_metadata)
        except Exception as refusal:  # also what nobody expected: gRPC would tell it to the caller, word for word
            return _refusing(refusal)
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        if holder is None:
            return self._open_calls.bounded(handler) if self._authority.asks else handler
        parse = handler.request_deserializer or _as_it_is
        return self._known(handler, self._authority.checking(parse, method, holder), holder)

    def _known(self, handler: Handler, parse: Callable[[bytes], Any], holder: Holder) -> Handler:
        """The handler, with messages checked and, in streams, paced; while it runs, the call knows its caller."""
        encode = handler.response_serializer
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(_told(handler.unary_unary, holder), parse, encode)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(_told(handler.unary_stream, holder), parse, encode)
        if handler.stream_unary is not None:
            paced = self._paced(handler.stream_unary, holder)
            return grpc.stream_unary_rpc_method_handler(_told(paced, holder), parse, encode)
        both_ways: Callable[..., Any] = handler.stream_stream  # type: ignore[assignment]  # there is no fifth kind
        return grpc.stream_stream_rpc_method_handler(_told(self._paced(both_ways, holder), holder), parse, encode)

    def _paced(self, behaviour: Callable[..., Any], holder: Holder) -> Callable[..., Any]:
        def answer(messages: AsyncIterator[Any], context: Context) -> Any:
            return behaviour(self._authority.paced(messages, holder), context)

        return answer


def _as_it_is(raw: bytes) -> bytes:
    return raw


def _refusing(refusal: Exception) -> Handler:
    """A handler that reads nothing. As one of streams it is called before a message came, however large that may be."""

    async def refuse(requests: object, context: Context) -> AsyncGenerator[object, None]:
        del requests, context
        raise refusal
        yield  # type: ignore[unreachable]  # a generator, as what answers streams is

    return grpc.stream_stream_rpc_method_handler(refuse)


def _told(behaviour: Callable[..., Any], holder: Holder) -> Callable[..., Any]:
    # Not a coroutine function: what the behaviour gives, an awaitable or an iterator, is handed on as it is.
    def answer(request: object, context: Context) -> Any:
        caller = holder.caller
        set_current_call(replace(current_call(), caller=caller.name, rights=caller))
        return behaviour(request, context)

    return answer
