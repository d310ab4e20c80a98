"""The same server inside this process, on a private unix socket."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path

from twinlens.encoders.protocol import EncoderLike, release
from twinlens.server.core.active import bundle_folder, open_data
from twinlens.server.core.app import Application
from twinlens.server.descriptors import allow_many_files
from twinlens.server.grpc_server import GrpcServer
from twinlens.server.settings import Settings, load_settings

_GRACE_S = 1.0


@contextmanager
def local_server(
    data_dir: Path | None = None,
    bundle: str | Path | None = None,
    *,
    settings: Settings | None = None,
    encoder: EncoderLike | None = None,
) -> Iterator[str]:
    """Serves a data folder to this process only, until the block ends.

    Args:
        data_dir: The data folder; None: an empty one that is removed afterwards.
        bundle: The bundle's folder, address or name; None: the one the folder was served with before.
        settings: Defaults to those of the environment.
        encoder: Serve with this encoder instead of loading a bundle.

    Yields:
        The target for a channel, "unix:/…". Its folder is readable by this user only.

    Raises:
        StartError: one line saying why it cannot be served.
    """
    chosen = settings or load_settings()
    allow_many_files()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinlens-")))  # made with mode 0700
        data = data_dir if data_dir is not None else folder / "data"
        loaded, catalog = open_data(data, None if bundle is None else bundle_folder(str(bundle)), chosen, encoder)
        if encoder is None:
            stack.callback(release, loaded)
        target = f"unix:{folder / 'socket'}"
        started: Future[None] = Future()
        end: Future[None] = Future()

        async def serve() -> None:
            try:
                server = GrpcServer(Application(loaded, catalog, chosen, data), target)
            except BaseException as error:
                catalog.close()
                started.set_exception(error)
                return
            try:
                try:
                    await server.start()
                except BaseException as error:
                    started.set_exception(error)
                    return
                started.set_result(None)
                await asyncio.wrap_future(end)
            finally:
                await server.stop(_GRACE_S)

        thread = threading.Thread(target=asyncio.run, args=(serve(),), name="twinlens-local-server", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(end.set_result, None)
        started.result()
        yield target
