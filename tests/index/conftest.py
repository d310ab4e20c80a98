from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.support.items import DIMENSION, SPACE
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.flat import FlatIndex
from twinlens.index.milvus.engine import MilvusEngine
from twinlens.index.protocol import VectorIndex

MakeEngine = Callable[[int], VectorIndex]


@contextmanager
def faiss_flat(folder: Path) -> Iterator[MakeEngine]:
    del folder
    yield FlatIndex


@contextmanager
def milvus_lite(folder: Path) -> Iterator[MakeEngine]:
    pytest.importorskip("milvus_lite")
    made = MilvusEngine(f"milvus:{folder / 'vectors.db'}")
    yield made
    made.close()


# Every engine joins here and then passes the same tests.
ENGINES: dict[str, Callable[[Path], AbstractContextManager[MakeEngine]]] = {
    "faiss-flat": faiss_flat,
    "milvus-lite": milvus_lite,
}


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeEngine]:
    with ENGINES[request.param](tmp_path) as made:
        yield made


@pytest.fixture
def catalog(tmp_path: Path, engine: MakeEngine) -> Iterator[Catalog]:
    opened = Catalog(tmp_path / "data", engine=engine)
    yield opened
    opened.close()


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    return catalog.create("photos", space_id=SPACE, dimension=DIMENSION)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2)
