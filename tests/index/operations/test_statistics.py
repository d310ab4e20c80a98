from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind
from twinlens.index.operations import picture_bytes
from twinlens.index.stats import IndexState


@pytest.fixture
def collection(catalog: Catalog) -> Collection:
    return catalog.create("photos", space_id=SPACE, dimension=DIMENSION, kind=Kind.FLAT)


def index_of(collection: Collection, modality: Modality = Modality.IMAGE) -> IndexState:
    (found,) = [index for index in collection.stats().indexes if index.modality is modality]
    return found


def test_merged_pending_and_hidden_vectors_are_counted(collection: Collection) -> None:
    collection.upsert([new_item(f"{i}", image_vector=axis(i % DIMENSION)) for i in range(30)], space_id=SPACE)
    before = index_of(collection)
    assert (before.kind, before.merged, before.pending, before.hidden) == (Kind.FLAT, 0, 30, 0)
    assert before.last_merge.ended_s is None
    collection.merge()
    merged = index_of(collection)
    assert (merged.merged, merged.pending, merged.hidden, merged.last_merge.error) == (30, 0, 0, "")
    assert merged.last_merge.ended_s is not None
    collection.delete(["0", "1"])
    collection.upsert([new_item("2"), new_item("more")], space_id=SPACE)
    changed = index_of(collection)
    assert (changed.merged, changed.pending, changed.hidden) == (30, 2, 3)
    stats = collection.stats()
    assert (stats.items, stats.image_vectors, stats.text_vectors, stats.kind) == (29, 29, 0, Kind.FLAT)


def test_bytes_are_those_on_disk(collection: Collection, tmp_path: Path) -> None:
    pictures = {f"{i}": bytes([i % 4]) * (100 + i % 4) for i in range(20)}
    collection.upsert([new_item(item_id, image=picture) for item_id, picture in pictures.items()], space_id=SPACE)
    folder = tmp_path / "data/collections/photos"
    assert collection.stats().sizes.pictures == sum(map(len, set(pictures.values())))
    collection.upsert([new_item("0", image=b"0123456789"), new_item("new", image=b"new")], space_id=SPACE)
    collection.delete(["1", "5", "9", "13", "17"])
    collection.merge()
    sizes = collection.stats().sizes
    on_disk = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    assert sizes.pictures == sum(size for path, size in on_disk.items() if path.is_relative_to(folder / "blobs"))
    assert sizes.indexes == sum(size for path, size in on_disk.items() if path.is_relative_to(folder / "indexes"))
    assert sizes.database == sum(size for path, size in on_disk.items() if path.name.startswith("collection.db"))
    assert min(sizes.pictures, sizes.indexes, sizes.database) > 0


def test_many_pictures_are_measured_in_the_background(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_bytes, "_FEW_ITEMS", 3)
    collection.upsert([new_item(f"{i}", image=b"%d" % i * 10) for i in range(5)], space_id=SPACE)
    work = collection._state.picture_bytes
    assert collection.stats().sizes.pictures in {0, 50}, "asked for just now"
    work.run()  # unless the thread in the background was faster
    assert collection.stats().sizes.pictures == 50
    assert work.wait_s(0.0) is None
    collection.delete(["0"])
    assert collection.stats().sizes.pictures == 40


def test_generations_tell_how_far_they_are(collection: Collection) -> None:
    collection.upsert([new_item(item_id) for item_id in "abc"], space_id=SPACE)
    number = collection.begin_generation(space_id="space-two", dimension=4)
    collection.write_vectors(number, {"a": {Modality.TEXT: np.ones(4)}, "b": {}})
    first, second = collection.generations()
    assert (first.space_id, first.dimension, first.active, first.items) == (SPACE, DIMENSION, True, 3)
    assert (second.number, second.space_id, second.dimension) == (number, "space-two", 4)
    assert (second.active, second.items) == (False, 2)
    assert collection.stats().generations == (first, second)
    collection.write_vectors(number, {"c": {}})
    collection.activate(number)
    assert [generation.active for generation in collection.generations()] == [False, True]
    collection.drop_generation(first.number)
    assert [generation.number for generation in collection.generations()] == [number]


def test_indexed_paths_are_told(collection: Collection) -> None:
    collection.add_metadata_index("year")
    collection.add_metadata_index("camera.model")
    assert len(collection.stats().metadata_indexes) == 2
