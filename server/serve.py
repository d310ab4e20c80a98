"""Running a server until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from twinlens.encoders.protocol import EncoderLike, variant_of
from twinlens.index.contract import CatalogLike
from twinlens.server.access.check import check_access
from twinlens.server.core.active import StartError, bundle_folder, load_encoder, open_data, read_active
from twinlens.server.core.app import Application
from twinlens.server.core.forked import ForkedProcess, check_encoder
from twinlens.server.descriptors import allow_many_files
from twinlens.server.grpc_server import GrpcServer
from twinlens.server.last_resort import LastResort
from twinlens.server.monitored import serve_metrics
from twinlens.server.settings import Settings
from twinlens.server.spans import Spans, exported_spans

log = logging.getLogger(__name__)

# What the end may take after the grace: workers that hang are waited for as well.
_LAST_RESORT_S = 20.0
# Spans that are not sent by then are lost.
_LAST_SPANS_S = 3.0


def serve(settings: Settings, *, encoder: EncoderLike | None = None) -> None:
    """Serves until SIGTERM or SIGINT, then ends gracefully; a second signal ends at once.

    Before it serves there is nothing to finish: while the model is loaded or measured, signals end it as they end any
    program.

    Args:
        settings: What to serve and where.
        encoder: Serve with this encoder instead of loading a bundle.

    Raises:
        StartError: one line saying why nothing can be served.
    """
    allow_many_files()
    if settings.data is None:
        raise StartError("name the folder that keeps the collections with --data DIR")
    check_access(settings)
    if encoder is not None:
        try:
            check_encoder(encoder)
        except ForkedProcess as error:
            raise StartError(error.message) from None
    with ExitStack() as ending:
        spans = None
        if settings.otlp_endpoint is not None:
            spans = exported_spans(settings.otlp_endpoint, settings.trace_ratio)
            ending.callback(spans.close, _LAST_SPANS_S)
        bundle = None if settings.bundle is None else bundle_folder(settings.bundle)
        loaded, catalog = open_data(settings.data, bundle, settings, encoder)
        reopen = None if encoder is not None else _reopener(settings, settings.data)
        last_resort = LastResort()
        ending.callback(last_resort.disarm)
        asyncio.run(_serve(settings, loaded, catalog, reopen, last_resort, spans))


def _reopener(settings: Settings, data: Path) -> Callable[[], EncoderLike] | None:
    """Loads the bundle that is served once more, as it was loaded: measured anew it is not."""
    active = read_active(data)
    if active is None:
        return None
    again = settings.model_copy(update={"tune": False, "precision": "tuned"}) if settings.tune else settings
    return partial(load_encoder, active.bundle, again, data)


async def _serve(
    settings: Settings,
    loaded: EncoderLike,
    catalog: CatalogLike,
    reopen: Callable[[], EncoderLike] | None,
    last_resort: LastResort,
    spans: Spans | None,
) -> None:
    stop = asyncio.Event()
    _on_signals(stop)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    app = Application(loaded, catalog, settings, reopen=reopen)
    server = GrpcServer(app, f"{host}:{settings.port}", spans=spans)
    if settings.tokens is not None:  # otherwise it ends the server, as it does any program whose terminal goes
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.reload)
    told_to_the_end = ExitStack()
    try:
        if settings.metrics_port is not None:
            metrics = serve_metrics(app, settings.metrics_host, settings.metrics_port)
            told_to_the_end.callback(metrics.close)
            log.info("metrics on %s", metrics.url)
        if not await _started(server, stop):
            return
        if settings.port_file is not None:
            _write_port(settings.port_file, server.address)
        manifest = loaded.manifest
        log.info("space %s; %s", manifest.space_id, variant_of(loaded) or "an encoder of the caller's")
        _announce(settings, f"serving {manifest.name}/{manifest.version} on {server.address}")
        await stop.wait()
        log.info("stopping; running calls have %.0f s to finish", settings.grace_s)
    finally:
        last_resort.arm(settings.grace_s + _LAST_RESORT_S)
        await server.stop(settings.grace_s)
        told_to_the_end.close()


def _announce(settings: Settings, line: str) -> None:
    """Where everything is JSON, this is, too."""
    if settings.log_format == "json":
        log.info("%s", line)
    else:
        print(f"twinlens: {line}", file=sys.stderr, flush=True)  # noqa: T201


async def _started(server: GrpcServer, stop: asyncio.Event) -> bool:
    """Whether it came to serve before it was told to stop.

    Raises:
        StartError: it cannot serve.
    """
    starting, stopping = asyncio.ensure_future(server.start()), asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False
    await starting
    return True


def _on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> Callable[[], None]:
        def act() -> None:
            if stop.is_set():
                os._exit(128 + number)
            stop.set()

        return act

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal(number))


def _write_port(path: Path, address: str) -> None:
    """In one step: who waits for the file never reads half a number."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(address.rpartition(":")[2] + "\n", encoding="ascii")
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        msg = f"the port file {path} cannot be written: {error.strerror}"
        raise StartError(msg) from None
