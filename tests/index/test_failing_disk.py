"""Every step of a longer operation made to fail in turn: a clear error, the old state kept, nothing left behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support.failing_disk import failing_disk
from tests.support.few_rows import structures_from
from tests.support.items import SPACE, new_item
from tests.support.oracle import assert_exact
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import CollectionError
from twinlens.index.item import Modality, NewItem
from twinlens.index.kinds.kind import Kind
from twinlens.index.operations.backup import list_backups
from twinlens.index.options import IndexOptions

OPTIONS = IndexOptions(threads=1, least_merged=100)
RNG = np.random.default_rng(0)
ITEMS = [new_item(f"{i}", image_vector=RNG.standard_normal(8), image=b"%d" % (i % 3)) for i in range(120)]
MORE = [new_item(f"more-{i}", image_vector=RNG.standard_normal(8), image=b"more %d" % i) for i in range(5)]


def assert_holds(collection: Collection, items: list[NewItem]) -> None:
    assert {item.id for item in collection.list(limit=10**4)} == {item.id for item in items}
    vectors = {item.id: item.vectors[Modality.IMAGE] for item in items}
    query = np.random.default_rng(1).standard_normal(8)
    for exact, top_k in ((True, 5), (False, 1000)):
        hits = collection.search(query[np.newaxis], modality=Modality.IMAGE, top_k=top_k, space_id=SPACE, exact=exact)
        assert_exact(query, vectors, top_k, [(hit.item.id, hit.score) for hit in hits[0]])
    for item in items[-3:]:
        assert collection.get_image(item.id) == item.image


def fail_in_turn(operation: Callable[[], None], after: Callable[[], None]) -> list[str]:
    """Fails each call in turn until the operation gets through without reaching it; returns what failed."""
    failed: list[str] = []
    for number in itertools.count(1):
        told = ""
        with failing_disk(number) as disk:
            try:
                operation()
            except CollectionError as error:
                told = str(error)
        assert "\n" not in told
        assert disk.failed or not told
        after()
        if not disk.failed:
            return failed
        failed.append(disk.failed)
    raise AssertionError


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with structures_from(100), closing(Catalog(tmp_path / "data", options=OPTIONS)) as opened:
        yield opened


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    made = catalog.create("photos", space_id=SPACE, dimension=8)
    made.upsert(ITEMS, space_id=SPACE)
    made.merge()
    return made


@pytest.mark.parametrize("kind", [Kind.FLAT, Kind.HNSW])
def test_a_merge_may_fail_at_any_step(collection: Collection, catalog: Catalog, kind: Kind) -> None:
    indexes = catalog._folder / "photos" / "indexes"

    def after() -> None:
        assert_holds(collection, ITEMS)
        assert len(list(indexes.iterdir())) == 1

    failed = fail_in_turn(lambda: collection.merge(kind=kind), after)
    assert {"fsync", "rename", "mkdir", "open"} <= set(failed)
    catalog.close()
    with closing(Catalog(catalog._folder.parent, options=OPTIONS)) as again:
        assert_holds(again.get("photos"), ITEMS)
        assert again.get("photos").stats().indexes[0].merged == 120


def test_storing_pictures_may_fail_at_any_step(collection: Collection, catalog: Catalog) -> None:
    blobs = catalog._folder / "photos" / "blobs"

    def store() -> None:
        collection.delete([item.id for item in MORE])
        collection.upsert(MORE, space_id=SPACE)

    def after() -> None:
        there = any(item.id.startswith("more") for item in collection.list(limit=10**4))
        assert_holds(collection, ITEMS + MORE if there else ITEMS)
        assert sum(path.is_file() for path in blobs.rglob("*")) == (8 if there else 3)

    assert {"fsync", "rename"} <= set(fail_in_turn(store, after))
    assert_holds(collection, ITEMS + MORE)


def test_creating_a_collection_may_fail_at_any_step(catalog: Catalog) -> None:
    def create() -> None:
        if any(found.id == "other" for found in catalog.list()):
            catalog.delete("other")
        catalog.create("other", space_id=SPACE, dimension=8)

    def after() -> None:
        for found in catalog.list():
            assert found.stats().items == 0
        assert {path.name for path in catalog._folder.iterdir()} <= {"other"}

    assert {"fsync", "rename", "mkdir"} <= set(fail_in_turn(create, after))
    assert [found.id for found in catalog.list()] == ["other"]


def test_a_backup_and_a_restore_may_fail_at_any_step(collection: Collection, catalog: Catalog, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    numbers = itertools.count()

    def back_up() -> None:
        for _ in collection.backup(str(place), backup=f"backup-{next(numbers)}"):
            pass

    def restorable() -> None:
        assert_holds(collection, ITEMS)
        for backup in list_backups(str(place)) if place.is_dir() else ():
            *_, restored = catalog.restore(str(place), backup.id, id="restored", replace=True)
            assert isinstance(restored, Collection)
            assert_holds(restored, ITEMS)

    assert fail_in_turn(back_up, restorable)

    def restore() -> None:
        for _ in catalog.restore(str(place), list_backups(str(place))[0].id, id="restored", replace=True):
            pass

    def still_there() -> None:
        assert_holds(collection, ITEMS)
        assert_holds(catalog.get("restored"), ITEMS)
        names = {path.name for path in catalog._folder.iterdir()}
        # What begins so is removed by the next start; but what waits for its name would be finished by it.
        assert {name for name in names if not name.startswith(".restored-")} == {"photos", "restored"}

    assert {"fsync", "mkdir"} <= set(fail_in_turn(restore, still_there))


def test_making_a_generation_the_active_one_may_fail_at_any_step(collection: Collection, catalog: Catalog) -> None:
    spaces, vector = (
        [SPACE, "space-two"],
        dict(zip([item.id for item in ITEMS], RNG.standard_normal((120, 8)), strict=True)),
    )

    def activate() -> None:
        other = spaces[collection.space_id == SPACE]
        generation = collection.begin_generation(space_id=other, dimension=8)
        while missing := collection.missing(generation, limit=1000):
            collection.write_vectors(generation, {item.id: {Modality.IMAGE: vector[item.id]} for item in missing})
        collection.activate(generation)

    def after() -> None:
        expected = vector if collection.space_id != SPACE else {i.id: i.vectors[Modality.IMAGE] for i in ITEMS}
        query = np.random.default_rng(1).standard_normal(8)
        hits = collection.search(query[np.newaxis], modality=Modality.IMAGE, top_k=1000, space_id=collection.space_id)[
            0
        ]
        assert_exact(query, expected, 1000, [(hit.item.id, hit.score) for hit in hits])
        assert len(list((catalog._folder / "photos" / "indexes").iterdir())) <= 2

    assert {"fsync", "rename", "mkdir", "open"} <= set(fail_in_turn(activate, after))


def test_opening_and_deleting_may_fail_at_any_step(collection: Collection, catalog: Catalog) -> None:
    root = catalog._folder.parent
    catalog.close()

    def use() -> None:
        with closing(Catalog(root, options=OPTIONS)) as opened:
            assert_holds(opened.get("photos"), ITEMS)
            opened.create("other", space_id=SPACE, dimension=8)
            opened.delete("other")

    def after() -> None:
        with closing(Catalog(root, options=OPTIONS)) as opened:
            assert_holds(opened.get("photos"), ITEMS)
            if any(found.id == "other" for found in opened.list()):
                opened.delete("other")

    assert {"fsync", "rename", "mkdir"} <= set(fail_in_turn(use, after))
