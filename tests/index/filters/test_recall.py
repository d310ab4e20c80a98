"""Whatever the kind of index, a filter costs no hits: as many come back as match, and nearly always the nearest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.items import SPACE
from tests.support.oracle import TOLERANCE
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality, NewItem
from twinlens.index.kinds.kind import Kind
from twinlens.index.milvus.engine import MilvusEngine

ROWS, DIMENSION, QUERIES, TOP_K, CLUSTERS = 6_000, 32, 30, 10, 20
MILVUS = "milvus-lite"
KINDS = [kind for kind in Kind if kind is not Kind.AUTO]


def clustered(seed: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Unit vectors around a few centres, shape (count, DIMENSION), and which centre each has."""
    centres = np.random.default_rng(11).normal(size=(CLUSTERS, DIMENSION))
    rng = np.random.default_rng(seed)
    cluster = rng.integers(CLUSTERS, size=count)
    vectors = centres[cluster] + 0.6 * rng.normal(size=(count, DIMENSION))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), cluster


VECTORS, CLUSTER = clustered(1, ROWS)
WANTED, _ = clustered(2, QUERIES)
DRAW = np.random.default_rng(3).permutation(ROWS)


@pytest.fixture(scope="module", params=[*KINDS, MILVUS])
def merged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """Most of it merged, some of it fresh, some of it replaced."""
    folder = tmp_path_factory.mktemp("recall")
    engine = None
    if request.param == MILVUS:
        pytest.importorskip("milvus_lite")
        engine = MilvusEngine(f"milvus:{folder / 'vectors.db'}")
    kind = None if request.param == MILVUS else request.param
    catalog = Catalog(folder, engine=engine)
    collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION, kind=kind)
    items = [
        NewItem(
            f"{i}",
            {Modality.IMAGE: VECTORS[i].astype(np.float32)},
            metadata={"draw": int(DRAW[i]), "cluster": int(CLUSTER[i])},
        )
        for i in range(ROWS)
    ]
    collection.upsert(items[:-200], space_id=SPACE)
    if kind is not None:
        collection.merge()
        (of_images,) = (state for state in collection.stats().indexes if state.modality is Modality.IMAGE)
        assert of_images.kind is kind
    collection.upsert(items[-300:], space_id=SPACE)
    yield collection
    catalog.close()
    if engine is not None:
        engine.close()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", np.ones(ROWS, dtype=bool)),
        (f"draw < {ROWS // 2}", DRAW < ROWS // 2),
        (f"draw < {ROWS // 20}", DRAW < ROWS // 20),
        (f"draw < {ROWS // 500}", DRAW < ROWS // 500),
        ("draw < 3", DRAW < 3),
        ("draw < 0", DRAW < 0),
        ("NOT cluster = 0 AND NOT cluster = 1", CLUSTER > 1),
        ("cluster = 7", CLUSTER == 7),  # far from most queries: what an index looks at first is all hidden
    ],
    ids=["all", "50 %", "5 %", "0.2 %", "3 items", "none", "most clusters", "one cluster"],
)
def test_hits_are_as_many_as_match_and_the_nearest(merged: Collection, text: str, shown: NDArray[np.bool_]) -> None:
    hits = merged.search(WANTED, modality=Modality.IMAGE, top_k=TOP_K, space_id=SPACE, filter=text)
    rows = np.flatnonzero(shown)
    wanted = min(TOP_K, len(rows))
    found_nearest = 0
    for query, of_query in zip(WANTED, hits, strict=True):
        keys = [int(hit.item.id) for hit in of_query]
        assert len(keys) == wanted
        assert len(set(keys)) == wanted
        assert shown[keys].all()
        cosines = VECTORS[rows] @ query
        if wanted:
            border = np.sort(cosines)[-wanted] - TOLERANCE
            found_nearest += sum(bool(VECTORS[key] @ query >= border) for key in keys)
    assert found_nearest >= 0.99 * wanted * QUERIES if text else found_nearest >= 0.95 * wanted * QUERIES


def test_exact_searches_find_every_nearest(merged: Collection) -> None:
    text = f"draw < {ROWS // 2}"
    hits = merged.search(WANTED, modality=Modality.IMAGE, top_k=TOP_K, space_id=SPACE, filter=text, exact=True)
    rows = np.flatnonzero(DRAW < ROWS // 2)
    for query, of_query in zip(WANTED, hits, strict=True):
        best = np.sort(VECTORS[rows] @ query)[::-1][:TOP_K]
        np.testing.assert_allclose([hit.score for hit in of_query], best, rtol=0, atol=1e-5)


def test_more_than_match_is_all_that_match(merged: Collection) -> None:
    (hits,) = merged.search(WANTED[:1], modality=Modality.IMAGE, top_k=ROWS, space_id=SPACE, filter="cluster = 3")
    assert {int(hit.item.id) for hit in hits} == set(np.flatnonzero(CLUSTER == 3).tolist())
