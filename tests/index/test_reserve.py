"""The room kept for deletions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twinlens.index.reserve import Reserve


def test_the_room_is_taken_where_the_system_cannot_allocate_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    Reserve(tmp_path / "reserve", 100_000).fill()
    assert (tmp_path / "reserve").read_bytes() == bytes(100_000)
