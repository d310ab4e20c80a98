from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.object_store import object_store
from twinlens.index.catalog import Catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """With the engine that a catalog has by itself: operations are the same on all."""
    opened = Catalog(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "backups")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with object_store() as url:
        yield url
