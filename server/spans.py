"""Spans of calls and of what they went into, for OpenTelemetry (extra "otel")."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING

from twinlens.server.core.active import StartError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

log = logging.getLogger(__name__)

# A call of a thousand pictures, or a stream without end, is told by its first stages.
_MOST_STAGES = 64
_EXPORT_TIMEOUT_S = 5.0
# The W3C's headers, by which a caller says which trace its call belongs to and whether that is recorded.
_HEADERS = frozenset({"traceparent", "tracestate"})
# Statuses that are the server's fault, by OpenTelemetry's conventions for gRPC servers.
_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})


class Spans:
    """Makes a span of every call that is sampled. Whoever made it closes it."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - the extra, as below
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._provider = provider
        self._tracer = provider.get_tracer("twinlens", version("twinlens"))
        self._extract = TraceContextTextMapPropagator().extract
        self._kind = SpanKind.SERVER
        self._below = set_span_in_context

    def begin(self, method: str, metadata: Iterable[tuple[str, str | bytes]] | None) -> CallSpan | None:
        """Begins the span of a call, below its caller's span where `metadata` names one.

        Args:
            method: Full name, "package.Service/Method".
            metadata: What came with the call.

        Returns:
            The span; None where the call is not sampled.
        """
        headers = {name: value for name, value in metadata or () if name in _HEADERS and isinstance(value, str)}
        attributes = {"rpc.system.name": "grpc", "rpc.method": method}
        above = self._extract(headers)
        span = self._tracer.start_span(method, context=above, kind=self._kind, attributes=attributes)
        return CallSpan(self._tracer, span, self._below(span)) if span.is_recording() else None

    def close(self, wait_s: float) -> None:
        """Sends what is not sent yet, for at most so long: where it goes to may be gone."""
        sending = threading.Thread(target=self._provider.shutdown, name="twinlens-last-spans", daemon=True)
        sending.start()
        sending.join(wait_s)
        if sending.is_alive():
            log.warning("the last spans could not be sent within %g s", wait_s)


class CallSpan:
    """The span of one call; its stages become spans below it. A `CallTrace`."""

    def __init__(self, tracer: Tracer, span: Span, below: Context) -> None:
        self._tracer = tracer
        self._span = span
        self._below = below
        # Spans are dated by the wall clock, stages are timed by one that never jumps.
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self._stages = 0
        self.trace_id = f"{span.get_span_context().trace_id:032x}"

    def add(self, stage: str, began_s: float, ended_s: float, **facts: str | int) -> None:
        """As `CallTrace.add`."""
        self._stages += 1
        if self._stages > _MOST_STAGES or not self._span.is_recording():
            return
        attributes = {f"twinlens.{name}": value for name, value in facts.items()}
        span = self._tracer.start_span(stage, context=self._below, start_time=self._at(began_s), attributes=attributes)
        span.end(end_time=self._at(ended_s))

    def end(self, code: str, *, request_id: str, caller: str, items: int, failed_items: int) -> None:
        """Ends it with the name of its status, such as "OK"."""
        facts: dict[str, str | int] = {"request_id": request_id, "items": items, "failed_items": failed_items}
        if caller:
            facts["token"] = caller
        if self._stages > _MOST_STAGES:
            facts["stages_left_out"] = self._stages - _MOST_STAGES
        self._span.set_attributes({f"twinlens.{name}": value for name, value in facts.items()})
        self._span.set_attribute("rpc.response.status_code", code)
        if code in _FAULTS:
            self._mark_failed(code)
        self._span.end()

    def _mark_failed(self, code: str) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - the extra

        self._span.set_attribute("error.type", code)
        self._span.set_status(StatusCode.ERROR)

    def _at(self, monotonic_s: float) -> int:
        return self._epoch_ns + round(1e9 * monotonic_s)


def exported_spans(endpoint: str, ratio: float) -> Spans:
    """Spans that are sent by OTLP over gRPC, in the background.

    Args:
        endpoint: Where to, such as "http://127.0.0.1:4317"; https:// for an encrypted connection.
        ratio: Which share of the calls that bring no decision of their own is sampled.

    Raises:
        StartError: where the extra is missing or the endpoint is no address, in one line.
    """
    if not endpoint.startswith(("http://", "https://")):
        msg = f"otlp_endpoint is an address such as http://127.0.0.1:4317, not {endpoint!r}"
        raise StartError(msg)
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - the extra
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415
    except ImportError:
        msg = "otlp_endpoint needs OpenTelemetry: install twinlens with it, as in pip install 'twinlens[otel]'"
        raise StartError(msg) from None
    ours = Resource({"service.name": "twinlens", "service.version": version("twinlens")})
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(ratio)),
        resource=ours.merge(OTELResourceDetector().detect()),  # OTEL_SERVICE_NAME and its like overrule
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_TIMEOUT_S)))
    return Spans(provider)
