"""Running a server until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from twinlens.encoders.protocol import EncoderLike, variant_of
from twinlens.index.contract import CatalogLike
from twinlens.server.core.active import StartError, bundle_folder, open_data
from twinlens.server.core.app import Application
from twinlens.server.descriptors import allow_many_files
from twinlens.server.grpc_server import GrpcServer
from twinlens.server.settings import Settings

log = logging.getLogger(__name__)


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
    bundle = None if settings.bundle is None else bundle_folder(settings.bundle)
    loaded, catalog = open_data(settings.data, bundle, settings, encoder)
    asyncio.run(_serve(settings, loaded, catalog))


async def _serve(settings: Settings, loaded: EncoderLike, catalog: CatalogLike) -> None:
    stop = asyncio.Event()
    _on_signals(stop)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    server = GrpcServer(Application(loaded, catalog, settings), f"{host}:{settings.port}")
    try:
        await server.start()
        if settings.port_file is not None:
            _write_port(settings.port_file, server.address)
        manifest = loaded.manifest
        log.info("space %s; %s", manifest.space_id, variant_of(loaded) or "an encoder of the caller's")
        print(f"twinlens: serving {manifest.name}/{manifest.version} on {server.address}", file=sys.stderr, flush=True)  # noqa: T201
        await stop.wait()
        log.info("stopping; running calls have %.0f s to finish", settings.grace_s)
    finally:
        await server.stop(settings.grace_s)


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
