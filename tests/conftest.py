"""Fixtures that every room's tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # so that tests can import `tests.support`


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real photos beside the project; tests that need it skip where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared photo sets are not on this machine")
    return folder
