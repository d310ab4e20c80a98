"""A server with tokens or TLS, and how to call it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.server.running import QUIET
from tests.support.fake_encoder import FakeEncoder
from twinlens.encoders.protocol import EncoderLike
from twinlens.server.access.token import digest, new_token
from twinlens.server.access.token_file import StoredToken, add_token, read_grant
from twinlens.server.core.active import open_data
from twinlens.server.core.app import Application
from twinlens.server.core.caller import Caller
from twinlens.server.grpc_server import GrpcServer
from twinlens.server.settings import Settings


class Secured:
    """A server that runs, and its application."""

    def __init__(self, server: GrpcServer, app: Application) -> None:
        self.server = server
        self.app = app
        self.address = server.address

    def refused(self, why: str) -> float:
        found = self.app.telemetry.registry.get_sample_value("twinlens_refused_calls_total", {"why": why})
        return found or 0.0


@asynccontextmanager
async def secured(data: Path, encoder: EncoderLike | None = None, **settings: Any) -> AsyncIterator[Secured]:
    chosen = Settings(**{**QUIET, **settings})
    loaded, catalog = open_data(data, None, chosen, encoder or FakeEncoder())
    app = Application(loaded, catalog, chosen)
    server = GrpcServer(app, "127.0.0.1:0")
    try:
        await server.start()
        yield Secured(server, app)
    finally:
        await server.stop(0)


def token_in(path: Path, name: str, *scopes: str, rate: float | None = None, expires: datetime | None = None) -> str:
    """A token that a file has from now on."""
    token = new_token(name)
    stored = StoredToken(Caller(name, tuple(map(read_grant, scopes))), digest(token), rate, expires)
    add_token(path, stored, datetime.now(UTC))
    return token


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)
