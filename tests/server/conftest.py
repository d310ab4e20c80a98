"""A real grpc.aio server on loopback with a fake encoder and a real catalog."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.server.running import Running, run_server
from tests.support.fake_encoder import FakeEncoder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest_asyncio.fixture
async def served(data: Path) -> AsyncIterator[Running]:
    async with run_server(data, FakeEncoder()) as running:
        yield running
