from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.items import DIMENSION, SPACE
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.flat import FlatIndex
from twinlens.index.protocol import VectorIndex

# Every engine joins here and then passes the same tests.
ENGINES: dict[str, Callable[[int], VectorIndex]] = {"faiss-flat": FlatIndex}


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Callable[[int], VectorIndex]:
    return ENGINES[request.param]


@pytest.fixture
def catalog(tmp_path: Path, engine: Callable[[int], VectorIndex]) -> Iterator[Catalog]:
    opened = Catalog(tmp_path / "data", engine=engine)
    yield opened
    opened.close()


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    return catalog.create("photos", space_id=SPACE, dimension=DIMENSION)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2)
