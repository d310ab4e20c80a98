"""A long run of everything: memory must not grow. Minutes: TWINLENS_SOAK_MINUTES, 1 where it is not set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.serving.collection import fill
from bench.serving.parts import Plan, soak
from bench.serving.photo_files import MANY_SIZES, write_photos
from bench.serving.twinlens_server import Variant, twinlens_server

pytestmark = pytest.mark.slow


def test_memory_does_not_grow_with_calls(tiny_bundle: Path, tmp_path: Path) -> None:
    plan = Plan(seconds=10, warm_s=2, photos=tmp_path, many_sizes=tmp_path / "pictures", scratch=tmp_path)
    write_photos(plan.many_sizes, 2 * len(MANY_SIZES), MANY_SIZES)
    vectors = tmp_path / "vectors"
    vectors.mkdir()
    with twinlens_server(tmp_path / "server", tiny_bundle, Variant("cpu", "fp32")) as server:
        fill(server.address, 2000, vectors)
        found = soak(server, float(os.environ.get("TWINLENS_SOAK_MINUTES", "1")), plan)
    assert set(found["outcomes"]) == {"ok", "refused picture"}
    assert found["calls"] > 1000
    assert found["mib_per_1000_calls"] < 1, found["samples"]
