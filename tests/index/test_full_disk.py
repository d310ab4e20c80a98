"""A disk that is full or read-only, for real: one clear error, the old state kept, and all goes on once it can."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.support.items import SPACE, new_item
from tests.support.oracle import assert_exact
from tests.support.small_disk import SmallDisk, small_disk
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import CollectionError
from twinlens.index.item import Modality, NewItem
from twinlens.index.kinds.kind import Kind
from twinlens.index.options import IndexOptions
from twinlens.index.tree import merge as merging

D = 32
FULL = "disk is full|no space left on device|the disk reports an error"
MERGED_WHEN_ASKED = IndexOptions(threads=1, least_merged=300)
READ_ONLY = "read-only|read only|cannot be opened"


def batch(number: int, size: int = 40) -> list[NewItem]:
    rng = np.random.default_rng(number)
    return [
        new_item(f"{number}-{i}", image_vector=rng.standard_normal(D), caption="c" * 300, image=rng.bytes(3000))
        for i in range(size)
    ]


def assert_holds(collection: Collection, batches: list[list[NewItem]]) -> None:
    items = {item.id: item for given in batches for item in given}
    assert {item.id for item in collection.list(limit=10**6)} == set(items)
    assert collection.stats().image_vectors == len(items)
    vectors = {item_id: item.vectors[Modality.IMAGE] for item_id, item in items.items()}
    query = np.random.default_rng(len(items)).standard_normal(D)
    hits = collection.search(query[np.newaxis], modality=Modality.IMAGE, top_k=10, space_id=SPACE, exact=True)[0]
    assert_exact(query, vectors, 10, [(hit.item.id, hit.score) for hit in hits])
    for item_id in list(items)[::7]:
        assert collection.get_image(item_id) == items[item_id].image


def pictures(root: Path) -> int:
    return sum(path.is_file() for path in (root / "collections" / "photos" / "blobs").rglob("*"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", mib=6) as mounted:
        mounted.fill(keep_bytes=3 * 2**20)
        yield mounted


def test_a_disk_that_fills_up_refuses_the_write_and_keeps_all_that_was_acknowledged(disk: SmallDisk) -> None:
    kept: list[list[NewItem]] = []

    def store_for_ever() -> None:
        for number in itertools.count():
            collection.upsert(batch(number), space_id=SPACE)
            kept.append(batch(number))

    with closing(Catalog(disk.root)) as catalog:
        collection = catalog.create("photos", space_id=SPACE, dimension=D)
        with pytest.raises(CollectionError, match=rf"(?i)^collection photos: .*({FULL})") as caught:
            store_for_ever()
        assert "\n" not in str(caught.value)
        assert len(kept) > 1
        assert_holds(collection, kept)
        assert pictures(disk.root) == 40 * len(kept)  # those of the refused call are not left lying
        disk.fill()
        for call in (
            lambda: collection.upsert([new_item("x", image_vector=np.ones(D), image=b"x" * 9000)], space_id=SPACE),
            lambda: catalog.create("more", space_id=SPACE, dimension=D),
        ):
            with pytest.raises(CollectionError, match=FULL):
                call()
            assert_holds(collection, kept)
        assert [found.id for found in catalog.list()] == ["photos"]
        disk.make_room()
        assert collection.delete([item.id for item in kept.pop()]) == 40
        collection.upsert(batch(5000, 5), space_id=SPACE)
        kept.append(batch(5000, 5))
        assert_holds(collection, kept)
    with closing(Catalog(disk.root)) as catalog:
        assert_holds(catalog.get("photos"), kept)


@pytest.mark.parametrize("by_filter", [False, True])
def test_items_on_a_full_disk_can_be_deleted_until_there_is_room_to_write(disk: SmallDisk, by_filter: bool) -> None:
    options = IndexOptions(threads=1, reserve_bytes=2**19)
    with closing(Catalog(disk.root, options=options)) as catalog:
        collection = catalog.create("photos", space_id=SPACE, dimension=D)
        for number in range(6):
            collection.upsert(batch(number), space_id=SPACE)
        disk.fill()
        with pytest.raises(CollectionError, match=FULL):
            collection.upsert(batch(9, 1), space_id=SPACE)
        if by_filter:
            assert collection.delete(filter='id < "2"') == 80
        else:
            assert collection.delete([item.id for number in range(2) for item in batch(number)]) == 80
        assert_holds(collection, [batch(number) for number in range(2, 6)])
        collection.upsert(batch(9, 5), space_id=SPACE)
        disk.make_room()
        assert not (disk.root / ".reserve").exists()
        collection.delete([item.id for item in batch(5)])
        assert (disk.root / ".reserve").stat().st_size == 2**19  # for the next time
        assert_holds(collection, [batch(2), batch(3), batch(4), batch(9, 5)])
        disk.fill()
    with closing(Catalog(disk.root, options=options)) as catalog:
        assert (disk.root / ".reserve").stat().st_size == 2**19  # also where there would be no room to make it
        collection = catalog.get("photos")
        disk.fill()
        assert collection.delete(["2-0"]) == 1
        assert not (disk.root / ".reserve").exists()
        assert_holds(collection, [batch(2)[1:], batch(3), batch(4), batch(9, 5)])


def test_a_small_disk_is_not_filled_by_what_is_kept_for_a_full_one(disk: SmallDisk) -> None:
    with closing(Catalog(disk.root)):
        assert not (disk.root / ".reserve").exists()
    (disk.root / ".reserve").write_bytes(b"of a run before")
    with closing(Catalog(disk.root, options=IndexOptions(reserve_bytes=0))) as catalog:
        collection = catalog.create("photos", space_id=SPACE, dimension=D)
        collection.upsert(batch(1), space_id=SPACE)
        disk.fill()
        with pytest.raises(CollectionError, match=FULL):
            collection.delete(["1-0"])
        assert_holds(collection, [batch(1)])


def test_a_collection_on_a_full_disk_can_be_deleted(disk: SmallDisk) -> None:
    with closing(Catalog(disk.root)) as catalog:
        catalog.create("photos", space_id=SPACE, dimension=D).upsert(batch(1), space_id=SPACE)
        disk.fill()
        catalog.delete("photos")
        assert catalog.list() == []
        catalog.create("photos", space_id=SPACE, dimension=D).upsert(batch(2, 10), space_id=SPACE)
        assert_holds(catalog.get("photos"), [batch(2, 10)])


def test_a_generation_that_fills_the_disk_leaves_the_active_one_as_it_was(disk: SmallDisk) -> None:
    def fill_it() -> None:
        rng = np.random.default_rng(3)
        while missing := collection.missing(generation, limit=20):
            made = {item.id: {Modality.IMAGE: rng.standard_normal(8192)} for item in missing}
            collection.write_vectors(generation, made)

    with closing(Catalog(disk.root)) as catalog:
        collection = catalog.create("photos", space_id=SPACE, dimension=D)
        collection.upsert(batch(1, 200), space_id=SPACE)
        generation = collection.begin_generation(space_id="wide", dimension=8192)
        with pytest.raises(CollectionError, match=FULL):
            fill_it()
        assert_holds(collection, [batch(1, 200)])
        disk.make_room()
        collection.drop_generation(generation)
        collection.upsert(batch(2, 5), space_id=SPACE)
        assert_holds(collection, [batch(1, 200), batch(2, 5)])


def wide(number: int, size: int) -> list[NewItem]:
    rng = np.random.default_rng(number)
    return [new_item(f"{number}-{i}", image_vector=rng.standard_normal(512)) for i in range(size)]


def assert_searchable(collection: Collection, items: list[NewItem]) -> None:
    vectors = {item.id: item.vectors[Modality.IMAGE] for item in items}
    for query in np.random.default_rng(9).standard_normal((3, 512)):
        for exact, top_k in ((True, 10), (False, len(items))):
            hits = collection.search(
                query[np.newaxis], modality=Modality.IMAGE, top_k=top_k, space_id=SPACE, exact=exact
            )[0]
            assert_exact(query, vectors, top_k, [(hit.item.id, hit.score) for hit in hits])


@pytest.mark.parametrize("kind", [Kind.FLAT, Kind.HNSW, Kind.IVF_PQ])
def test_a_merge_that_fills_the_disk_is_told_and_the_index_before_goes_on(disk: SmallDisk, kind: Kind) -> None:
    root, indexes = disk.root, disk.root / "collections" / "photos" / "indexes"
    first, second = wide(1, 300), wide(2, 70)
    with closing(Catalog(root, options=MERGED_WHEN_ASKED)) as catalog:
        collection = catalog.create("photos", space_id=SPACE, dimension=512, kind=kind)
        collection.upsert(first, space_id=SPACE)
        collection.merge()
        segments = sorted(path.name for path in indexes.iterdir())
        collection.upsert(second, space_id=SPACE)
        disk.fill(keep_bytes=300_000)
        with pytest.raises(CollectionError, match=rf"(?i)^collection photos: .*({FULL})") as caught:
            collection.merge()
        assert "\n" not in str(caught.value)
        assert_searchable(collection, first + second)
        assert sorted(path.name for path in indexes.iterdir()) == segments  # nothing half made takes room
        of_images = collection.stats().indexes[0]
        assert (of_images.merged, of_images.pending, of_images.merging) == (300, 70, False)
        assert of_images.last_merge.error
        disk.make_room()
        collection.delete([second[0].id])
        collection.merge()
        of_images = collection.stats().indexes[0]
        assert (of_images.merged, of_images.pending, of_images.last_merge.error) == (369, 0, "")
        assert_searchable(collection, first + second[1:])
    with closing(Catalog(root, options=MERGED_WHEN_ASKED)) as catalog:
        assert_searchable(catalog.get("photos"), first + second[1:])


def test_merges_in_the_background_fail_quietly_on_a_full_disk_and_writes_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []
    failed = threading.Event()

    def full(*_given: object, **_options: object) -> None:
        attempts.append(1)
        failed.set()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with closing(Catalog(tmp_path, options=IndexOptions(threads=1, least_merged=100))) as catalog:
        collection = catalog.create("photos", space_id=SPACE, dimension=512)
        items: list[NewItem] = []
        with monkeypatch.context() as patched:
            patched.setattr(merging, "write_segment", full)
            for number in range(6):
                collection.upsert(wide(number, 40), space_id=SPACE)
                items += wide(number, 40)
            assert failed.wait(30)
            assert_searchable(collection, items)
            for number in range(10, 15):
                collection.upsert(wide(number, 1), space_id=SPACE)
                items += wide(number, 1)
            assert len(attempts) == 1  # it is not tried again with every write
        collection.merge()
        assert_searchable(collection, items)
        assert collection.stats().indexes[0].merged == len(items)


def test_a_read_only_folder_is_a_clear_error_and_nothing_changes(disk: SmallDisk) -> None:
    with closing(Catalog(disk.root)) as catalog:
        catalog.create("photos", space_id=SPACE, dimension=D).upsert(batch(1), space_id=SPACE)
    before = {path: path.read_bytes() for path in disk.root.rglob("*") if path.is_file()}
    with disk.read_only(), pytest.raises(CollectionError, match=rf"the data folder .*({READ_ONLY})") as caught:
        Catalog(disk.root)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in disk.root.rglob("*") if path.is_file()} == before
    with closing(Catalog(disk.root)) as catalog:
        assert_holds(catalog.get("photos"), [batch(1)])


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """As on a disk where files stop growing; works without rights, but the system says that files are too large."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 1000, 40_000, 150_000])
def test_a_write_that_the_system_cuts_off_is_undone_and_can_be_made_again(tmp_path: Path, room: int) -> None:
    with closing(Catalog(tmp_path)) as catalog:
        collection = catalog.create("photos", space_id=SPACE, dimension=D)
        collection.upsert(batch(1), space_id=SPACE)
        log = tmp_path / "collections" / "photos" / "collection.db-wal"
        many = [new_item(f"{i}", image_vector=np.ones(D), caption="c" * 2000) for i in range(400)]
        with (
            files_no_longer_than(log.stat().st_size + room),
            pytest.raises(CollectionError, match=rf"(?i)^collection photos: .*({FULL})"),
        ):
            collection.upsert(many, space_id=SPACE)
        assert_holds(collection, [batch(1)])
        collection.upsert(many, space_id=SPACE)
        assert collection.stats().items == 440
    with closing(Catalog(tmp_path)) as catalog:
        assert catalog.get("photos").stats().items == 440
