"""A server that asks for tokens, and one that may do everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tests.server.access.secured import Secured, secured, token_in


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


@pytest.fixture
def admin(tokens: Path) -> str:
    return token_in(tokens, "admin", "admin")


@pytest_asyncio.fixture
async def server(data: Path, tokens: Path, admin: str) -> AsyncIterator[Secured]:
    async with secured(data, tokens=tokens) as running:
        yield running


@pytest_asyncio.fixture
async def channel(server: Secured) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address) as opened:
        yield opened
