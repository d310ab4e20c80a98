from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.support.few_rows import structures_from
from tests.support.items import DIMENSION, SPACE
from tests.support.merging_index import MergingIndex
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.flat import FlatIndex
from twinlens.index.kinds.kind import Kind
from twinlens.index.milvus.engine import MilvusEngine
from twinlens.index.options import IndexOptions
from twinlens.index.protocol import VectorIndex

MakeEngine = Callable[[int], VectorIndex]
MakeCatalog = Callable[[Path], Catalog]


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


@contextmanager
def trees(folder: Path, kind: Kind) -> Iterator[MakeEngine]:
    folder.joinpath("segments").mkdir()
    with structures_from(50):
        yield partial(MergingIndex, folder / "segments", kind=kind)


# Every engine joins here and then passes the same tests.
ENGINES: dict[str, Callable[[Path], AbstractContextManager[MakeEngine]]] = {
    "faiss-flat": faiss_flat,
    **{f"tree-{kind}": partial(trees, kind=kind) for kind in Kind if kind is not Kind.AUTO},
    "milvus-lite": milvus_lite,
}
# Those that find by comparing with everything, also when not asked to.
EXACT_ENGINES = {"faiss-flat", "tree-flat"}


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeEngine]:
    with ENGINES[request.param](tmp_path) as made:
        yield made


@pytest.fixture
def always_exact(request: pytest.FixtureRequest) -> bool:
    return request.node.callspec.params["engine"] in EXACT_ENGINES


@contextmanager
def over_faiss(folder: Path) -> Iterator[MakeCatalog]:
    del folder
    # Whatever has a few vectors is merged in the background all the time.
    yield partial(Catalog, options=IndexOptions(threads=1, least_merged=4))


@contextmanager
def over_milvus(folder: Path) -> Iterator[MakeCatalog]:
    with milvus_lite(folder) as made:
        yield partial(Catalog, engine=made)


# Every kind of catalog joins here and then passes the same tests.
CATALOGS: dict[str, Callable[[Path], AbstractContextManager[MakeCatalog]]] = {
    "faiss": over_faiss,
    "milvus-lite": over_milvus,
}


# What hardly depends on the engine runs on the slower one only when slow tests are wanted.
SAME_ON_EVERY_ENGINE = {"test_catalog", "test_collection_items", "test_damage", "test_metadata_vectors"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        chosen = item.callspec.params if hasattr(item, "callspec") else {}
        if chosen.get("open_catalog") == "milvus-lite" and item.path.stem in SAME_ON_EVERY_ENGINE:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=list(CATALOGS))
def open_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeCatalog]:
    with CATALOGS[request.param](tmp_path) as made:
        yield made


@pytest.fixture
def catalog(tmp_path: Path, open_catalog: MakeCatalog) -> Iterator[Catalog]:
    opened = open_catalog(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    return catalog.create("photos", space_id=SPACE, dimension=DIMENSION)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2)
