"""What is derived may be damaged, lost or mixed up: it is found out, logged, and built again from the truth."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.few_rows import structures_from
from tests.support.oracle import assert_exact
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import DamagedSegment
from twinlens.index.item import Modality, NewItem
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.segment import open_segment
from twinlens.index.options import IndexOptions
from twinlens.index.search_threads import SearchThreads

D = 16
SPACE = "space-one"
MERGED = 300
OPTIONS = IndexOptions(threads=1, least_merged=MERGED)  # the rest is too little to be merged unless asked
KINDS = [Kind.FLAT, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (Kind.HNSW, Kind.IVF_FLAT, Kind.IVF_PQ))]
Vectors = dict[str, NDArray[np.float32]]


def made(seed: int, n: int = 340) -> Vectors:
    rng = np.random.default_rng(seed)
    return {f"{seed}-{i}": v for i, v in enumerate(rng.standard_normal((n, D)).astype(np.float32))}


@contextmanager
def opened(root: Path) -> Iterator[Catalog]:
    with closing(Catalog(root, options=OPTIONS)) as catalog:
        yield catalog


def store(collection: Collection, vectors: Vectors) -> None:
    items = [
        NewItem(item_id, {modality: vector if modality is Modality.IMAGE else -vector for modality in Modality})
        for item_id, vector in vectors.items()
    ]
    collection.upsert(items, space_id=SPACE)


def fill(root: Path, collection_id: str, vectors: Vectors, kind: Kind, *, deleted: int = 0) -> None:
    """The first are merged; the rest is written afterwards. Those deleted before shift the keys."""
    with opened(root) as catalog:
        collection = catalog.create(collection_id, space_id=SPACE, dimension=D, kind=kind)
        if deleted:
            store(collection, made(9, deleted))
            collection.delete(list(made(9, deleted)))
        pairs = list(vectors.items())
        store(collection, dict(pairs[:MERGED]))
        collection.merge()
        store(collection, dict(pairs[MERGED:]))


def assert_holds(collection: Collection, vectors: Vectors) -> None:
    stats = collection.stats()
    assert stats.items == stats.image_vectors == stats.text_vectors == len(vectors)
    for query in np.random.default_rng(len(vectors)).standard_normal((3, D)):
        for modality, sign in ((Modality.IMAGE, 1), (Modality.TEXT, -1)):
            for top_k, exact in ((10, True), (len(vectors) + 1, False)):
                hits = collection.search(query[np.newaxis], modality=modality, top_k=top_k, space_id=SPACE, exact=exact)
                there = {item_id: sign * vector for item_id, vector in vectors.items()}
                assert_exact(query, there, top_k, [(hit.item.id, hit.score) for hit in hits[0]])


def folders(root: Path, collection_id: str = "photos") -> list[Path]:
    return sorted(path for path in (root / "collections" / collection_id / "indexes").iterdir() if path.is_dir())


def files(root: Path) -> list[Path]:
    return sorted(folders(root)[0].iterdir())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def assert_found_out_and_mended(root: Path, vectors: Vectors, caplog: pytest.LogCaptureFixture, told: str) -> None:
    caplog.clear()
    with opened(root) as catalog:
        assert_holds(catalog.get("photos"), vectors)
        said = warnings(caplog)
        assert len(said) == 1, said
        assert said[0].startswith("collection photos: ")
        assert told in said[0]
        assert "\n" not in said[0]
        catalog.get("photos").merge()
        assert_holds(catalog.get("photos"), vectors)
    caplog.clear()
    with opened(root) as catalog:
        assert_holds(catalog.get("photos"), vectors)
        assert warnings(caplog) == []


@pytest.fixture(scope="module", autouse=True)
def few_rows() -> Iterator[None]:
    with structures_from(100):
        yield


@pytest.fixture(scope="module", params=KINDS)
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Vectors]:
    """A data folder with a closed collection of each kind; to be copied."""
    root = tmp_path_factory.mktemp("sound") / "data"
    vectors = made(1)
    fill(root, "photos", vectors, request.param)
    return root, vectors


@pytest.fixture
def root(sound: tuple[Path, Vectors], tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound[0], tmp_path / "data"))


@pytest.fixture
def vectors(sound: tuple[Path, Vectors]) -> Vectors:
    return sound[1]


def test_undamaged_segments_are_opened_and_nothing_is_said(
    root: Path, vectors: Vectors, caplog: pytest.LogCaptureFixture
) -> None:
    before = folders(root)
    assert len(before) == 2
    with opened(root) as catalog:
        assert_holds(catalog.get("photos"), vectors)
        assert {tree.merged for tree in catalog.get("photos")._state.current().trees.values()} == {MERGED}
    assert warnings(caplog) == []
    assert folders(root) == before


def flip(content: bytes, rng: np.random.Generator) -> bytes:
    flipped = bytearray(content)
    flipped[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    return bytes(flipped)


DAMAGES: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
    "a bit flipped": flip,
    "two bytes short": lambda content, _: content[:-2],
    "empty": lambda _content, _: b"",
    "longer": lambda content, _: content + b"\0",
    "zeros": lambda content, _: bytes(len(content)),
    "noise": lambda content, rng: rng.bytes(len(content)),
}


@pytest.mark.parametrize(
    "damage", [*list(DAMAGES)[:2], *(pytest.param(damage, marks=pytest.mark.slow) for damage in list(DAMAGES)[2:])]
)
def test_any_damage_to_any_file_of_a_segment_is_found_and_mended(
    sound: tuple[Path, Vectors], tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    for number, file in enumerate(files(sound[0])):
        root = Path(shutil.copytree(sound[0], tmp_path / f"{number}"))
        path = root / file.relative_to(sound[0])
        path.write_bytes(DAMAGES[damage](path.read_bytes(), np.random.default_rng(number)))
        assert_found_out_and_mended(root, sound[1], caplog, path.name)


def test_a_file_that_is_gone_or_a_folder_is_found_and_mended(
    sound: tuple[Path, Vectors], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, file in enumerate(files(sound[0])):
        root = Path(shutil.copytree(sound[0], tmp_path / f"{number}"))
        path = root / file.relative_to(sound[0])
        path.unlink()
        if number % 2:
            path.mkdir()
        assert_found_out_and_mended(root, sound[1], caplog, path.name)


def test_a_bit_flipped_anywhere_is_found(root: Path) -> None:
    rng = np.random.default_rng(5)
    threads = SearchThreads(1)
    for path in files(root):
        whole = path.read_bytes()
        for _ in range(200):
            path.write_bytes(flip(whole, rng))
            with pytest.raises(DamagedSegment, match=path.name):
                open_segment(path.parent, threads=threads)
        path.write_bytes(whole)
    open_segment(folders(root)[0], threads=threads).close()


def test_all_that_is_derived_may_be_deleted(root: Path, vectors: Vectors) -> None:
    shutil.rmtree(root / "collections" / "photos" / "indexes")
    with opened(root) as catalog:
        assert_holds(catalog.get("photos"), vectors)
        catalog.get("photos").merge()
    with opened(root) as catalog:
        assert_holds(catalog.get("photos"), vectors)
    assert len(folders(root)) == 2


def test_folders_that_no_row_names_are_removed(root: Path, vectors: Vectors) -> None:
    before = folders(root)
    shutil.copytree(before[0], before[0].with_name("f" * 32))
    before[0].with_name(".half.new").mkdir()
    (before[0].with_name(".half.new") / "vectors.f32").write_bytes(b"half")
    with opened(root) as catalog:
        assert_holds(catalog.get("photos"), vectors)
    assert folders(root) == before


def test_a_row_that_names_a_folder_outside_is_never_followed(root: Path, vectors: Vectors) -> None:
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_bytes(b"kept")
    with closing(sqlite3.connect(root / "collections" / "photos" / "collection.db")) as connection:
        connection.execute("UPDATE segments SET token = '../../../elsewhere' WHERE modality = 'image'")
        connection.commit()
    with opened(root) as catalog, pytest.raises(Exception, match=r"collection photos.*segment"):
        catalog.get("photos")
    assert (elsewhere / "kept").read_bytes() == b"kept"


@pytest.mark.parametrize("what", ["vectors.f32", "keys.npy", "segment.json", "all"])
def test_files_swapped_between_collections_are_found_out(
    root: Path, vectors: Vectors, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    kind = Kind.FLAT
    with opened(root) as catalog:
        kind = catalog.get("photos").kind
    others = made(2)
    fill(root, "others", others, kind, deleted=3)
    mine, theirs = folders(root)[0], folders(root, "others")[0]
    for path in sorted(mine.iterdir()):
        if what in {path.name, "all"}:
            shutil.copyfile(theirs / path.name, path)
    assert_found_out_and_mended(root, vectors, caplog, mine.name)
    with opened(root) as catalog:
        assert_holds(catalog.get("others"), others)


def test_segments_swapped_between_modalities_are_found_out(
    root: Path, vectors: Vectors, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = folders(root)
    aside = one.with_name(".aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
    caplog.clear()
    with opened(root) as catalog:
        assert_holds(catalog.get("photos"), vectors)
        assert len(warnings(caplog)) == 2


def test_an_older_database_over_newer_segments_gives_what_the_database_says(root: Path, vectors: Vectors) -> None:
    database = root / "collections" / "photos" / "collection.db"
    older = database.read_bytes()
    with opened(root) as catalog:
        collection = catalog.get("photos")
        store(collection, {**made(3, 50), **{item_id: -vector for item_id, vector in list(vectors.items())[:20]}})
        collection.delete(list(vectors)[60:90])
        collection.merge()
        store(collection, made(4, 10))
    database.write_bytes(older)
    with opened(root) as catalog:
        assert_holds(catalog.get("photos"), vectors)
        store(catalog.get("photos"), made(3, 20))  # keys that the newer segments knew as others
        assert_holds(catalog.get("photos"), {**vectors, **made(3, 20)})


def test_an_older_database_over_segments_that_still_count_gives_what_the_database_says(
    root: Path, vectors: Vectors
) -> None:
    database = root / "collections" / "photos" / "collection.db"
    older = database.read_bytes()
    with opened(root) as catalog:
        store(catalog.get("photos"), {**made(3, 50), **{item_id: -v for item_id, v in list(vectors.items())[:20]}})
        catalog.get("photos").delete(list(vectors)[60:90])
    database.write_bytes(older)
    with opened(root) as catalog:
        assert_holds(catalog.get("photos"), vectors)
        store(catalog.get("photos"), made(3, 20))
        assert_holds(catalog.get("photos"), {**vectors, **made(3, 20)})


def test_older_segments_beside_a_newer_database_are_not_used(root: Path, vectors: Vectors) -> None:
    indexes = root / "collections" / "photos" / "indexes"
    shutil.copytree(indexes, root / "older")
    with opened(root) as catalog:
        store(catalog.get("photos"), made(3, 50))
        catalog.get("photos").merge()
    shutil.rmtree(indexes)
    (root / "older").rename(indexes)
    with opened(root) as catalog:
        assert_holds(catalog.get("photos"), {**vectors, **made(3, 50)})
