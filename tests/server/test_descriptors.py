from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.running import run_server
from tests.server.watched import PATIENCE_S
from tests.support.chaos.raw_http2 import raw_caller
from tests.support.fake_encoder import FakeEncoder
from twinlens.server import grpc_server
from twinlens.server.descriptors import most_connections

SCRIPT = """
import resource, sys
before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2] else hard))
from twinlens.server.descriptors import allow_many_files
allow_many_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [(256, "", HARD if 0 <= HARD < 65_536 else 65_536), (256, "512", 512), (512, "512", 512)],
)
def test_the_limit_on_open_files_is_raised_as_far_as_allowed(soft: int, hard: str, after: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(soft), hard], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [str(after), hard or str(HARD)]


@pytest.mark.parametrize(
    ("limit", "most"), [(160, 80), (1024, 512), (65_536, 65_024), (resource.RLIM_INFINITY, 65_536)]
)
def test_connections_leave_files_for_everything_else(limit: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert most_connections() == most


async def test_a_connection_too_many_is_closed_and_taken_once_there_is_room(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "most_connections", lambda: 2)
    async with run_server(data, FakeEncoder()) as served:
        await served.embed("ours is the first")
        async with raw_caller(served.server.address) as second:
            second.greet()
            assert await second.read() is not None
            assert await closed(served.server.address)
        async with asyncio.timeout(PATIENCE_S):
            while await closed(served.server.address):
                pass  # until the second is seen to be gone


async def closed(address: str) -> bool:
    async with raw_caller(address) as caller:
        caller.greet()
        return await caller.read() is None
