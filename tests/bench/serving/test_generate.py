"""The load generator against a real server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bench.serving.generate import run
from bench.serving.photo_files import write_photos
from bench.serving.targets import BAD_PICTURE
from tests.server.running import Running, run_server
from tests.support.fake_encoder import FakeEncoder


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Running]:
    async with run_server(tmp_path / "data", FakeEncoder()) as running:
        yield running


@pytest.fixture
def order(served: Running, tmp_path: Path) -> dict[str, Any]:
    write_photos(tmp_path / "photos", 3, ((64, 48),))
    common = {"target": "twinlens", "address": served.server.address, "photos": str(tmp_path / "photos")}
    return {**common, "pid": os.getpid(), "metrics": None, "tower": "image", "timeout_s": 30}


async def test_a_closed_loop_tells_rates_waits_and_what_the_server_used(order: dict[str, Any]) -> None:
    found = await run({**order, "work": "image", "callers": 4, "warm_s": 0.05, "seconds": 0.4})
    assert set(found["outcomes"]) == {"ok"}
    assert found["ok_per_s"] > 0
    assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"]
    assert found["rss_mib"] > 0
    assert found["cpu_ms_per_call"] >= 0


async def test_of_ten_pictures_one_is_poisoned_and_refused_alone(order: dict[str, Any]) -> None:
    found = await run({**order, "work": "poisoned", "callers": 1, "warm_s": 0.0, "seconds": 0.5})
    good, bad = found["outcomes"]["ok"], found["outcomes"][BAD_PICTURE]
    assert set(found["outcomes"]) == {"ok", BAD_PICTURE}
    assert good == pytest.approx(9 * bad, abs=10)


async def test_an_open_loop_tells_of_each_phase(order: dict[str, Any]) -> None:
    phases = [{"name": name, "per_s": 60, "seconds": 0.3} for name in ("calm", "flood", "after")]
    found = await run({**order, "work": "text", "tower": "text", "phases": phases, "slow_s": 30.0})
    assert set(found) == {"calm", "flood", "after", "recovery_s"}
    assert set(found["flood"]["outcomes"]) == {"ok"}
    assert found["recovery_s"] == 0.0
