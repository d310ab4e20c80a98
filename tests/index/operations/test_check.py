from __future__ import annotations

import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.forgetful_index import ForgetfulIndex
from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import CollectionNotFound, CorruptCollection
from twinlens.index.item import Modality
from twinlens.index.operations.checks import probe
from twinlens.index.operations.steps import Finding, Progress
from twinlens.index.protocol import VectorIndex, Vectors


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    made = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    rng = np.random.default_rng(3)
    made.upsert(
        [
            new_item(
                f"item-{i:03d}",
                image_vector=rng.standard_normal(DIMENSION),
                text_vector=rng.standard_normal(DIMENSION) if i % 3 else None,
                image=b"picture %d" % (i % 40),
                caption=f"{i}",
            )
            for i in range(200)
        ],
        space_id=SPACE,
    )
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "collections" / "photos"


def findings(collection: Collection) -> list[Finding]:
    steps = list(collection.check())
    for step in steps:
        if isinstance(step, Progress):
            assert step.done >= 0
            assert step.done <= step.total or not step.total
    return [step for step in steps if isinstance(step, Finding)]


def change(folder: Path, statement: str, *values: object) -> None:
    """Changes the database behind the collection's back."""
    with closing(sqlite3.connect(folder / "collection.db", isolation_level=None)) as connection:
        assert connection.execute(statement, values).rowcount > 0


@pytest.mark.parametrize("merged", [False, True])
def test_nothing_is_found_in_a_sound_collection(collection: Collection, *, merged: bool) -> None:
    generation = collection.begin_generation(space_id="other", dimension=4)
    items = collection.missing(generation, limit=50)
    collection.write_vectors(generation, {item.id: {Modality.IMAGE: axis(1, 4)} for item in items})
    if merged:
        collection.merge()
    collection.delete(["item-000", "item-199"])
    collection.upsert([new_item("item-100", image_vector=axis(3)), new_item("new")], space_id=SPACE)
    assert findings(collection) == []


def test_an_empty_collection_is_sound(catalog: Catalog) -> None:
    assert findings(catalog.create("empty", space_id=SPACE, dimension=DIMENSION)) == []


def test_a_damaged_vector_is_named_by_its_item(collection: Collection, folder: Path) -> None:
    change(folder, "UPDATE vectors SET vector = zeroblob(32) WHERE item = 7 AND modality = 'image'")
    change(folder, "UPDATE vectors SET vector = x'00' WHERE item = 8 AND modality = 'text'")
    found = findings(collection)
    assert [(finding.part, finding.subject) for finding in found if finding.part == "vectors"] == [
        ("vectors", "item-006"),
        ("vectors", "item-007"),
    ]
    assert "store the item again" in found[0].message


def test_a_vector_exchanged_in_the_database_is_noticed_by_searches(collection: Collection, folder: Path) -> None:
    collection.merge()
    good = collection.get_vector("item-000", Modality.IMAGE)
    change(folder, "UPDATE vectors SET vector = ? WHERE modality = 'image'", good.astype("<f4").tobytes())
    assert {finding.part for finding in findings(collection)} == {"search"}


def test_vectors_that_the_index_misses_or_invents_are_counted(collection: Collection, folder: Path) -> None:
    change(folder, "DELETE FROM vectors WHERE item = 5 AND modality = 'image'")
    change(
        folder,
        "INSERT INTO vectors SELECT generation, 1, 'text', vector FROM vectors WHERE item = 2 AND modality = 'text'",
    )
    messages = [finding.message for finding in findings(collection) if finding.part == "index"]
    assert any("image: 1 vectors are in the index but not stored (item numbers 5)" in message for message in messages)
    assert any("text: 1 vectors are stored but not in the index (item numbers 1)" in message for message in messages)


def test_rows_that_do_not_fit_each_other_are_found(collection: Collection, folder: Path) -> None:
    change(folder, "DELETE FROM embedded WHERE item = 9")
    found = [finding.message for finding in findings(collection) if finding.part == "database"]
    assert any("a row of vectors names a row of embedded" in message for message in found)
    assert any("1 items are unknown to the active generation" in message for message in found)


def test_a_damaged_row_of_an_item_is_found(collection: Collection, folder: Path) -> None:
    change(folder, "UPDATE items SET metadata = 'no json' WHERE id = 'item-150'")
    change(folder, "UPDATE items SET metadata = '[]' WHERE id = 'item-151'")
    found = findings(collection)
    assert [(finding.part, finding.subject) for finding in found] == [
        ("database", "item-150"),
        ("database", "item-151"),
    ]
    assert "item-150" in found[0].message


def test_whatever_bit_changes_in_the_database_is_found_or_changes_nothing(
    catalog: Catalog, collection: Collection, folder: Path, tmp_path: Path
) -> None:
    def contents(of: Collection) -> list[object]:
        vectors = [rows.tobytes() for modality in Modality for _, rows in of.iter_vectors(modality)]
        items = [replace(item, created_s=0.0, updated_s=0.0) for item in of.list(limit=1000)]
        return [*vectors, *items, *(of.get_image(item.id) for item in items)]

    expected = contents(collection)
    catalog.close()
    good, rng = (folder / "collection.db").read_bytes(), np.random.default_rng(11)
    outcomes: Counter[str] = Counter()
    for round_ in range(24):
        changed = bytearray(good)
        changed[rng.integers(len(good))] ^= 1 << rng.integers(8)
        copy = tmp_path / str(round_)
        shutil.copytree(tmp_path / "data", copy)
        (copy / "collections/photos/collection.db").write_bytes(changed)
        again = Catalog(copy)
        try:
            opened = again.get("photos")
        except CorruptCollection:
            outcomes["refused"] += 1
        else:
            if findings(opened):
                outcomes["found"] += 1
            else:
                assert contents(opened) == expected
                outcomes["harmless"] += 1
        again.close()
    assert outcomes["found"] > 0, outcomes


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_a_lost_or_changed_picture_is_named_by_its_items(
    collection: Collection, folder: Path, damage: Callable[[Path], None]
) -> None:
    digest = collection.get("item-003").content_hash
    damage(folder / "blobs" / digest[:2] / digest[2:4] / digest)
    (finding,) = findings(collection)
    assert (finding.part, finding.subject) == ("pictures", "item-003")
    assert digest in finding.message
    assert "store the item again" in finding.message
    collection.upsert([new_item("item-003", image=b"picture 3")], space_id=SPACE)
    assert findings(collection) == []


def test_a_file_among_the_pictures_that_is_of_no_item_is_named(collection: Collection, folder: Path) -> None:
    (folder / "blobs" / "stranger").write_bytes(b"?")
    (finding,) = findings(collection)
    assert (finding.part, finding.subject) == ("pictures", "stranger")


def test_a_damaged_segment_is_named_and_a_merge_mends_it(collection: Collection, folder: Path) -> None:
    collection.merge()
    path = next(path for path in sorted((folder / "indexes").rglob("keys.npy")))
    flip(path)
    found = findings(collection)
    assert {finding.part for finding in found} == {"index"}
    assert path.name in found[0].message
    collection.merge()
    assert findings(collection) == []


def test_whoever_waits_to_close_a_collection_does_not_wait_for_its_index_files_to_be_read(
    collection: Collection,
) -> None:
    collection.merge()
    steps = collection.check()
    while next(steps) != Progress("index files", 0, 2):
        pass
    collection._state.closing.set()
    with pytest.raises(CollectionNotFound, match="is being closed"):
        next(steps)


def test_an_index_that_misses_the_nearest_is_named(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path, engine=ForgetfulIndex)
    collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    vectors = np.random.default_rng(0).standard_normal((50, DIMENSION))
    collection.upsert([new_item(f"{i}", image_vector=v) for i, v in enumerate(vectors)], space_id=SPACE)
    (finding,) = findings(collection)
    assert finding.part == "search"
    assert "finds the nearest vector in 0% of searches" in finding.message
    catalog.close()


def test_of_many_findings_of_one_sort_the_first_are_named_and_the_rest_counted(
    collection: Collection, folder: Path
) -> None:
    change(folder, "UPDATE vectors SET vector = zeroblob(32) WHERE modality = 'image'")
    found = [finding for finding in findings(collection) if finding.part == "vectors"]
    assert len(found) == 51
    assert found[-1] == Finding("vectors", "", "and 150 more like the last one")


def test_nothing_is_found_while_others_write_delete_and_merge(collection: Collection) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        rng = np.random.default_rng()
        try:
            while not stop.is_set():
                number = int(rng.integers(300))
                if number % 4 == 0:
                    collection.delete([f"item-{number:03d}"])
                else:
                    picture = b"picture %d" % rng.integers(1000)
                    vector = rng.standard_normal(DIMENSION)
                    collection.upsert(
                        [new_item(f"item-{number:03d}", image_vector=vector, image=picture)], space_id=SPACE
                    )
                if number % 50 == 1:
                    collection.merge(wait=False)
        except BaseException as error:
            failures.append(error)
            raise

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(5):
            assert findings(collection) == []
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert not failures


def test_writers_wait_for_a_check_only_where_it_finds_no_quiet_moment_and_then_for_few_searches(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, bool]] = []
    real = probe.Probe

    class Watched(real):  # type: ignore[misc, valid-type]
        def __init__(self, engine: VectorIndex, near: Vectors) -> None:
            made.append((len(near), collection._state.writing.locked()))
            if not made[-1][1]:
                collection.upsert([new_item("restless")], space_id=SPACE)
            super().__init__(engine, near)

    monkeypatch.setattr(probe, "Probe", Watched)
    assert findings(collection) == []
    assert made == [(32, False), (32, False), (32, False), (8, True)] * 2


def test_a_check_ends_when_the_collection_closes_or_the_caller_goes(catalog: Catalog, collection: Collection) -> None:
    steps: Iterator[Progress | Finding] = collection.check()
    while next(steps) != Progress("image vectors", 0, 200):
        pass
    steps.close()  # type: ignore[attr-defined]
    steps = collection.check()
    while next(steps) != Progress("image vectors", 0, 200):
        pass
    catalog.close()
    with pytest.raises(CollectionNotFound):
        list(steps)
