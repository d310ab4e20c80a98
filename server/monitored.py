"""What of a server is told to Prometheus beside what it counts: what it serves, its collections, its process."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from prometheus_client import Info, ProcessCollector, disable_created_metrics

from twinlens.encoders.protocol import variant_of
from twinlens.server.core.app import Application
from twinlens.server.core.collection_gauges import CollectionGauges
from twinlens.server.core.loop_delay import LoopDelay
from twinlens.server.metrics_http import MetricsServer


def serve_metrics(app: Application, host: str, port: int) -> MetricsServer:
    """Serves what an application counts and what is read when it is asked for; called in its event loop.

    Args:
        app: What is told of.
        host: Address to listen on.
        port: Port; 0 picks a free one.

    Returns:
        Whoever asked for it closes it.

    Raises:
        StartError: if the address cannot be used, in one line.
    """
    # They are a series more for each, which nobody asks for.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has not typed it
    registry = app.telemetry.registry
    manifest = app.engine.manifest
    Info("twinlens_build", "The version that runs.", registry=registry).info({"version": version("twinlens")})
    Info("twinlens_model", "The model that is served.", registry=registry).info(
        {
            "name": manifest.name,
            "version": manifest.version,
            "space_id": manifest.space_id,
            "variant": variant_of(app.engine.encoder),
        }
    )
    ProcessCollector(registry=registry)
    registry.register(CollectionGauges(app.catalog))
    registry.register(LoopDelay(asyncio.get_running_loop()))
    return MetricsServer(registry, host, port)
