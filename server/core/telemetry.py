"""What a server counts and times, for Prometheus. One set an application; nothing here knows of a network."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# Seconds: from a tokenised text (0.1 ms) to a call that waits for a full server.
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_METHOD = ("grpc_type", "grpc_service", "grpc_method")
_WHY_REFUSED = ("items", "bytes", "wait", "calls", "operations", "token", "scope", "rate")


class Telemetry:
    """Counters, gauges and histograms, each an attribute, registered in `registry`.

    The names of calls are those of go-grpc-prometheus, which dashboards know. Hot paths keep the child that
    `labels()` returns.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.calls_started = Counter("grpc_server_started", "Calls begun.", _METHOD, registry=r)
        self.calls_handled = Counter(
            "grpc_server_handled", "Calls ended, by status.", (*_METHOD, "grpc_code"), registry=r
        )
        self.call_seconds = Histogram(
            "grpc_server_handling_seconds", "From the first byte to the status.", _METHOD, buckets=_SECONDS, registry=r
        )
        self.messages_received = Counter("grpc_server_msg_received", "Messages of callers.", _METHOD, registry=r)
        self.messages_sent = Counter("grpc_server_msg_sent", "Messages to callers.", _METHOD, registry=r)
        self.results = Counter(
            "twinlens_results",
            "Results in replies: ok, or failed alone.",
            ("grpc_service", "grpc_method", "outcome"),
            registry=r,
        )
        self.failed_items = Counter(
            "twinlens_failed_items", "Results that failed alone, by why.", ("reason",), registry=r
        )
        self.refused = Counter("twinlens_refused_calls", "Calls refused before any work.", ("why",), registry=r)
        for why in _WHY_REFUSED:  # a counter that begins with its first refusal has no rate for it
            self.refused.labels(why)
        self.fetches = Counter("twinlens_fetches", "Pictures fetched by address.", ("outcome",), registry=r)

        self.items = Counter("twinlens_items", "Pictures and texts brought to the towers.", registry=r)
        self.item_outcomes = Counter(
            "twinlens_item_outcomes",
            "What became of them: embedded, failed alone, or abandoned with their call.",
            ("outcome",),
            registry=r,
        )
        self.items_in_flight = Gauge("twinlens_items_in_flight", "Items admitted and not answered.", registry=r)
        self.bytes_in_flight = Gauge("twinlens_bytes_in_flight", "Their bytes as they were sent.", registry=r)
        self.prepare_seconds = Histogram(
            "twinlens_prepare_seconds",
            "Decoding a picture, or tokenising a few texts.",
            ("kind",),
            buckets=_SECONDS,
            registry=r,
        )
        self.queued_items = Gauge("twinlens_queued_items", "Items that wait for their tower.", ("tower",), registry=r)
        self.queue_seconds = Histogram(
            "twinlens_queue_seconds",
            "What a prepared item waited for its tower.",
            ("tower",),
            buckets=_SECONDS,
            registry=r,
        )
        self.batch_items = Histogram(
            "twinlens_batch_items", "Items of one batch.", ("tower",), buckets=_ITEMS, registry=r
        )
        self.encode_seconds = Histogram(
            "twinlens_encode_seconds", "One batch in its tower.", ("tower",), buckets=_SECONDS, registry=r
        )
        self.dropped_items = Counter(
            "twinlens_dropped_items", "Items nobody waited for any more, not run.", ("stage", "why"), registry=r
        )
        self.retried_batches = Counter(
            "twinlens_retried_batches", "Batches that failed and were run item by item.", ("tower",), registry=r
        )
        self.search_seconds = Histogram(
            "twinlens_search_seconds", "One batch of queries in the index.", buckets=_SECONDS, registry=r
        )

        self.workers_replaced = Counter(
            "twinlens_workers_replaced", "Stuck or dead workers that were replaced.", ("pool",), registry=r
        )
        self.healthy = Gauge("twinlens_healthy", "1 while health is SERVING.", registry=r)
        self.canary_seconds = Histogram(
            "twinlens_canary_seconds", "A canary through encoder and index.", buckets=_SECONDS, registry=r
        )
