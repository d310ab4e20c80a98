"""Where the commands find their server: at an address, or started for them in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import typer

from twinlens.client.access import access, current_options
from twinlens.client.channel import TIMEOUT_S
from twinlens.client.client import Client
from twinlens.client.errors import TwinlensError


class LocalFactory(Protocol):
    """Starts a server in this process."""

    def __call__(
        self, data: Path | None, bundle: str | None, /, *, backups: str | None = None
    ) -> AbstractContextManager[str]:
        """Serves a data folder and gives the server's target.

        Args:
            data: The folder; None: a temporary one.
            bundle: Folder, address or name, which it is the server's part to find; None: the one the folder remembers.
            backups: Where backups are kept; None: as the environment says.
        """
        ...


SERVER_VARIABLE = "TWINLENS_SERVER"
_local: list[LocalFactory] = []


def register_local(factory: LocalFactory) -> None:
    """Says how `--local` starts a server. The client knows no server, so whoever composes the program tells it."""
    _local[:] = [factory]


@contextmanager
def connect(
    server: str | None = None,
    local: str | os.PathLike[str] | None = None,
    bundle: str | os.PathLike[str] | None = None,
    *,
    create: bool = False,
    alone: bool = False,
    way_out: str = "`twinlens ingest` makes one",
    backups: str | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> Iterator[Client]:
    """A client of the server that the options name: `--server`, else `--local`/`--bundle`, else TWINLENS_SERVER.

    A server at an address is shown the token and the certificate of the command's options and of the environment.

    Args:
        server: HOST:PORT of a running server.
        local: A data folder to serve from this process while the block lasts.
        bundle: The bundle to serve it with: a folder, an address or a name.
        create: Make the data folder if it is missing; otherwise that is an error.
        alone: A bundle without a data folder will do: a temporary one is served, of which nothing is kept.
        way_out: What the error advises.
        backups: Where backups are kept, for a server started here; one that runs has a place of its own.
        timeout_s: Deadline of each call that asks, in seconds; None waits for ever.

    Raises:
        typer.BadParameter: where the options name no server, or two, or a bundle alone.
        TwinlensError: NOT_FOUND where the data folder is missing.
    """
    if server is not None and (local is not None or bundle is not None):
        raise typer.BadParameter(
            "--server and --local/--bundle exclude each other: the server has its own data and bundle"
        )
    if backups is not None and local is None:
        raise typer.BadParameter(
            "--to and --from go with --local: a server has its own place for backups (`backups`, TWINLENS_BACKUPS)"
        )
    options = current_options.get()
    if local is None and bundle is None:
        target = server if server is not None else os.environ.get(SERVER_VARIABLE)
        if not target:
            raise typer.BadParameter(
                f"no server named: give --server HOST:PORT or --local DIR, or set {SERVER_VARIABLE}"
            )
        shown = access(options)
        with Client(target, token=shown.token, tls=shown.tls, timeout_s=timeout_s) as client:
            yield client
        return
    if options.given:
        raise typer.BadParameter(
            "--token-file and --tls… go with --server: what --local starts is reached by no one else"
        )
    if local is None and not alone:
        raise typer.BadParameter("--bundle goes with --local DIR, the folder that keeps the collections")
    if local is not None and not create and not Path(local).is_dir():
        raise TwinlensError("NOT_FOUND", f"no such folder: {os.fspath(local)} (--local); {way_out}")
    if not _local:
        raise TwinlensError("FAILED_PRECONDITION", "--local needs the twinlens command, which brings the server along")
    data = None if local is None else Path(local)
    with (
        _local[0](data, None if bundle is None else os.fspath(bundle), backups=backups) as target,
        Client(target, timeout_s=timeout_s) as client,
    ):
        yield client
