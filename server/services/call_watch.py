"""Watching calls from outside: counted and timed, told to the log, and traced where that is asked for."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from prometheus_client import Counter

from twinlens.server.core.call import current_call, set_current_call
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.services.results import count_results
from twinlens.server.spans import CallSpan, Spans

log = logging.getLogger("twinlens.access")

# By whether the request and the reply are streams.
_KINDS = {
    (False, False): "unary",
    (True, False): "client_stream",
    (False, True): "server_stream",
    (True, True): "bidi_stream",
}
# A caller whose time is up hangs up a little before the server's own clock says so: the wire rounds what is left.
_ROUNDED_S = 0.05
_ROUNDED_SHARE = 0.01

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # not generic at run time


class CallWatch(grpc.aio.ServerInterceptor):
    """The outermost interceptor: it sees what a call ends with, whatever the others make of it.

    Args:
        telemetry: Where calls are counted.
        services: Full names of the services whose calls are; those of others pass by.
        log_level: Of the line that every call gets in the log "twinlens.access".
        spans: Makes a span of each call; None: none are made.
    """

    def __init__(
        self, telemetry: Telemetry, services: Iterable[str], *, log_level: int, spans: Spans | None = None
    ) -> None:
        self._log_level = log_level
        self._spans = spans
        found = map(descriptor_pool.Default().FindServiceByName, services)
        # All of them now, so that a method is at 0 before its first call: rates need a value to start from.
        methods = [_Method(telemetry, method) for service in found for method in service.methods]
        self._methods = {f"/{method.name}": method for method in methods}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the methods it knows; health and reflection stay as they are."""
        handler = await continuation(handler_call_details)
        method = self._methods.get(handler_call_details.method)
        if handler is None or method is None:
            return handler
        # Not what the method is: what refuses a call unread takes its messages as a stream and asks for none.
        behaviour, wrap = _behaviour(handler)
        streams_replies = bool(handler.response_streaming)
        decode, encode = handler.request_deserializer, handler.response_serializer
        seen = _SeenCall(method)

        def received(raw: bytes) -> object:
            method.received.inc()
            return raw if decode is None else decode(raw)

        def sent(reply: object) -> object:
            seen.note(reply)
            return reply if encode is None else encode(reply)

        async def watched(request: Any, context: Context) -> object:
            seen.span = self._begin(method, handler_call_details)
            method.started.inc()
            seen.began_s = time.monotonic()
            code = grpc.StatusCode.UNKNOWN
            try:
                reply = await behaviour(request, context)
                if not streams_replies:
                    seen.note(reply)
                code = grpc.StatusCode.OK
                return reply
            except asyncio.CancelledError:
                code = _given_up(context, time.monotonic() - seen.began_s)
                raise
            except BaseException:
                told: grpc.StatusCode | None = context.code()  # the stubs leave out that there may be none
                code = told or code
                raise
            finally:
                self._ended(seen, code, context)

        return wrap(watched, received, sent if streams_replies else encode)

    def _begin(self, method: _Method, details: grpc.HandlerCallDetails) -> CallSpan | None:
        span = None if self._spans is None else self._spans.begin(method.name, details.invocation_metadata)
        if span is not None:
            set_current_call(replace(current_call(), trace=span))
        return span

    def _ended(self, seen: _SeenCall, code: grpc.StatusCode, context: Context) -> None:
        seconds = time.monotonic() - seen.began_s
        seen.method.seconds.observe(seconds)
        seen.method.handled(code).inc()
        call = current_call()
        if seen.span is not None:
            seen.span.end(
                code.name, request_id=call.request_id, caller=call.caller, items=seen.items, failed_items=seen.failed
            )
        if not log.isEnabledFor(self._log_level):
            return
        fields: dict[str, str | int | float] = {
            "request_id": call.request_id,
            "method": seen.method.name,
            "code": code.name,
            "seconds": round(seconds, 6),
            "items": seen.items,
            "failed_items": seen.failed,
            "peer": context.peer(),
        }
        if call.caller:
            fields["token"] = call.caller
        if seen.span is not None:
            fields["trace_id"] = seen.span.trace_id
        line = "%s request %s ended with %s after %.1f ms"
        values = (seen.method.name, call.request_id, code.name, 1e3 * seconds)
        log.log(self._log_level, line, *values, extra={"fields": fields})


class _Method:
    """One method: what it is called, and its counters, found once."""

    def __init__(self, telemetry: Telemetry, descriptor: MethodDescriptor) -> None:
        kind = _KINDS[bool(descriptor.client_streaming), bool(descriptor.server_streaming)]
        service, method = descriptor.containing_service.full_name, descriptor.name
        self.name = f"{service}/{method}"
        self._telemetry = telemetry
        self._labels = labels = (kind, service, method)
        self._handled: dict[grpc.StatusCode, Counter] = {}
        self._results: tuple[Counter, Counter] | None = None  # of methods whose replies have some
        self.started = telemetry.calls_started.labels(*labels)
        self.seconds = telemetry.call_seconds.labels(*labels)
        self.received = telemetry.messages_received.labels(*labels)
        self.sent = telemetry.messages_sent.labels(*labels)
        self.handled(grpc.StatusCode.OK)

    def handled(self, code: grpc.StatusCode) -> Counter:
        """The counter of calls that ended with a status."""
        if (found := self._handled.get(code)) is None:
            found = self._handled[code] = self._telemetry.calls_handled.labels(*self._labels, _shown(code))
        return found

    def count_results(self, good: int, reasons: Sequence[str]) -> None:
        """Counts results of a reply: the good ones, and why others failed."""
        if self._results is None:
            found = self._telemetry.results
            self._results = (found.labels(*self._labels[1:], "ok"), found.labels(*self._labels[1:], "failed"))
        ok, failed = self._results
        ok.inc(good)
        if reasons:
            failed.inc(len(reasons))
            for reason in reasons:
                self._telemetry.failed_items.labels(reason).inc()


class _SeenCall:
    """What is noted of one call while it runs."""

    __slots__ = ("began_s", "failed", "items", "method", "span")

    def __init__(self, method: _Method) -> None:
        self.method = method
        self.span: CallSpan | None = None
        self.began_s = 0.0
        self.items = 0
        self.failed = 0

    def note(self, reply: object) -> None:
        """Counts a reply and the results in it."""
        self.method.sent.inc()
        items, reasons = count_results(reply)
        if items:
            self.items += items
            self.failed += len(reasons)
            self.method.count_results(items - len(reasons), reasons)


def _behaviour(handler: Any) -> tuple[Callable[..., Any], Callable[..., Handler]]:
    """What a handler does, and what makes a handler of the like."""
    if handler.unary_unary is not None:
        return handler.unary_unary, grpc.unary_unary_rpc_method_handler
    if handler.stream_unary is not None:
        return handler.stream_unary, grpc.stream_unary_rpc_method_handler
    if handler.unary_stream is not None:
        return handler.unary_stream, grpc.unary_stream_rpc_method_handler
    return handler.stream_stream, grpc.stream_stream_rpc_method_handler


def _given_up(context: Context, after_s: float) -> grpc.StatusCode:
    """Whether a caller's time was up when it went away."""
    left_s: float | None = context.time_remaining()  # the stubs leave out that there may be no deadline
    if left_s is None or left_s > _ROUNDED_S + _ROUNDED_SHARE * after_s:
        return grpc.StatusCode.CANCELLED
    return grpc.StatusCode.DEADLINE_EXCEEDED


def _shown(code: grpc.StatusCode) -> str:
    """As go-grpc-prometheus spells it, which dashboards and alert rules compare with: "InvalidArgument"."""
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return code.name if code is grpc.StatusCode.OK else code.name.title().replace("_", "")
