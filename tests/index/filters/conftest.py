from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from twinlens.index.catalog import Catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """With the usual engine only: filters are the database's work; test_recall.py has the other engines."""
    opened = Catalog(tmp_path / "data")
    yield opened
    opened.close()
