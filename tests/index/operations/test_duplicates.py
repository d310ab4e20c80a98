from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.items import DIMENSION, SPACE, axis, new_item
from tests.support.oracle import cosines
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import CollectionNotFound, InvalidArgument
from twinlens.index.flat import FlatIndex
from twinlens.index.item import Modality
from twinlens.index.operations import near_pairs
from twinlens.index.operations.disjoint_sets import DisjointSets
from twinlens.index.operations.steps import DuplicateGroup, Progress

Vectors = Mapping[str, NDArray[np.float32]]


@pytest.fixture(params=["kinds of our own", "another engine"])
def collection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Collection]:
    """With vectors that can be compared all with all, and with an engine that has to be searched."""
    catalog = Catalog(tmp_path / "data", engine=FlatIndex if request.param == "another engine" else None)
    yield catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    catalog.close()


def groups_of(collection: Collection, **options: object) -> list[DuplicateGroup]:
    steps = list(collection.duplicates(Modality.IMAGE, **options))  # type: ignore[arg-type]
    return [step for step in steps if isinstance(step, DuplicateGroup)]


def oracle(vectors: Vectors, threshold: float) -> dict[tuple[str, ...], float]:
    """Groups by walking from item to item over all cosines in float64, with the lowest of the nearest links."""
    near = {
        item_id: {
            other: cosine
            for other, cosine in cosines(vector, vectors).items()
            if other != item_id and cosine >= threshold
        }
        for item_id, vector in vectors.items()
    }
    groups = {}
    left = set(vectors)
    while left:
        group, edge = set[str](), {min(left)}
        while edge:
            group |= edge
            edge = {other for item_id in edge for other in near[item_id]} - group
        left -= group
        if len(group) > 1:
            groups[tuple(sorted(group))] = min(max(near[item_id].values()) for item_id in group)
    return groups


def clustered(rng: np.random.Generator, count: int) -> dict[str, NDArray[np.float32]]:
    """Unit vectors around few centres, some of them equal; no cosine within 1e-4 of a threshold that is tested."""
    centres = rng.standard_normal((max(count // 6, 1), DIMENSION))
    made = centres[rng.integers(len(centres), size=count)] + 0.12 * rng.standard_normal((count, DIMENSION))
    made[rng.integers(count, size=count // 5)] = made[rng.integers(count, size=count // 5)]
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return {f"item-{i:04d}": vector for i, vector in enumerate(made.astype(np.float32))}


def store(collection: Collection, vectors: Vectors) -> None:
    collection.upsert([new_item(item_id, image_vector=vector) for item_id, vector in vectors.items()], space_id=SPACE)


def stored(collection: Collection) -> Vectors:
    return {
        item_id: vector
        for ids, rows in collection.iter_vectors(Modality.IMAGE)
        for item_id, vector in zip(ids, rows, strict=True)
    }


@pytest.mark.parametrize("exact", [None, False])
@pytest.mark.parametrize("threshold", [0.8, 0.95, 0.999])
def test_groups_equal_those_of_numpy(
    collection: Collection,
    rng: np.random.Generator,
    threshold: float,
    exact: bool | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, size in {"_BLOCK": 37, "_BESIDE": 64, "_SCORED": 50, "_QUERIES": 41, "_FIRST_K": 2}.items():
        monkeypatch.setattr(near_pairs, name, size)
    store(collection, clustered(rng, 400))
    found = groups_of(collection, threshold=threshold, exact=exact)
    expected = oracle(stored(collection), threshold)
    assert {tuple(group.ids) for group in found} == set(expected)
    for group in found:
        assert group.score == pytest.approx(expected[tuple(group.ids)], abs=2e-6)
    sizes = [len(group.ids) for group in found]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes


def test_many_equal_vectors_are_one_group(collection: Collection) -> None:
    same = {f"same-{i:04d}": axis(0) for i in range(3000)}
    store(collection, {**same, "other": axis(1), "near": axis(0) + 0.01 * axis(2)})
    for exact in (True, False):
        (group,) = groups_of(collection, threshold=0.99, exact=exact)
        assert list(group.ids) == [*same, "near"]


def test_nothing_is_alike_in_an_empty_collection_or_below_the_threshold(collection: Collection) -> None:
    assert groups_of(collection) == []
    store(collection, {f"{i}": axis(i) for i in range(DIMENSION)})
    assert groups_of(collection, threshold=0.001) == []
    assert list(collection.duplicates(Modality.TEXT))[-1] == Progress("comparing", 0, 0)


@pytest.mark.parametrize("threshold", [0.0, -0.5, 1.01, float("nan")])
def test_a_threshold_that_makes_no_sense_is_refused(collection: Collection, threshold: float) -> None:
    with pytest.raises(InvalidArgument, match="threshold"):
        groups_of(collection, threshold=threshold)


def test_items_deleted_while_groups_are_read_are_left_out(collection: Collection) -> None:
    store(collection, {name: axis(0 if name < "d" else 1) for name in "abcde"})
    steps = collection.duplicates(Modality.IMAGE, threshold=0.9)
    while next(steps) != Progress("comparing", 5, 5):
        pass
    collection.delete(["b", "e"])
    assert [list(group.ids) for group in steps if isinstance(group, DuplicateGroup)] == [["a", "c"]]


def test_the_search_for_duplicates_stops_when_the_collection_closes_or_the_caller_goes(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    store(collection, {name: axis(0) for name in "abc"})
    steps = collection.duplicates(Modality.IMAGE)
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    steps = collection.duplicates(Modality.IMAGE)
    next(steps)
    catalog.close()
    with pytest.raises(CollectionNotFound):
        list(steps)


@pytest.mark.parametrize("exact", [None, False])
def test_a_collection_that_closes_at_any_step_is_told_as_closed(tmp_path: Path, exact: bool | None) -> None:
    taken, ended = 0, False
    while not ended:
        catalog = Catalog(tmp_path / f"{taken}")
        collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
        store(collection, {name: axis(0) for name in "abc"})
        steps = collection.duplicates(Modality.IMAGE, exact=exact)
        for _ in range(taken):
            next(steps)
        catalog.close()
        with suppress(CollectionNotFound):
            ended = next(steps, None) is None
        taken += 1
    assert taken > 3


@given(
    st.integers(1, 60).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
    )
)
def test_sets_are_those_of_a_dictionary(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    count, links = drawn
    sets, model = DisjointSets(count), {number: {number} for number in range(count)}
    for start in range(0, len(links), 3):
        batch = links[start : start + 3]
        sets.join(np.array([a for a, _ in batch]), np.array([b for _, b in batch]))
        for a, b in batch:
            union = model[a] | model[b]
            model.update(dict.fromkeys(union, union))
    assert sets.names(np.arange(count)).tolist() == [min(model[number]) for number in range(count)]
    groups = [group.tolist() for group in sets.groups()]
    expected = {tuple(sorted(union)) for union in model.values() if len(union) > 1}
    assert {tuple(group) for group in groups} == expected
    assert groups == sorted(groups, key=lambda group: (-len(group), group[0]))
