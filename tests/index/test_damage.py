"""Damaged files, full disks, newer versions: one clear error that names the collection, and the old state kept."""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from tests.support.items import SPACE, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import CollectionError, CorruptCollection
from twinlens.index.item import Modality
from twinlens.index.schema import MIGRATIONS, SCHEMA_VERSION, migrate


@contextmanager
def opened(root: Path) -> Iterator[Catalog]:
    catalog = Catalog(root)
    try:
        yield catalog
    finally:
        with suppress(CollectionError):
            catalog.close()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A closed collection of 200 items; the path of its database."""
    rng = np.random.default_rng(0)
    with opened(tmp_path) as catalog:
        collection = catalog.create("photos", space_id=SPACE, dimension=64)
        vectors = rng.standard_normal((200, 64))
        collection.upsert(
            [new_item(f"{i}", image_vector=vector, caption="c" * 50) for i, vector in enumerate(vectors)],
            space_id=SPACE,
        )
    return tmp_path / "collections" / "photos" / "collection.db"


def exercise(root: Path) -> None:
    with opened(root) as catalog:
        collection = catalog.get("photos")
        for item in collection.list(limit=1000):
            collection.get(item.id)
        collection.search(np.ones((1, 64)), modality=Modality.IMAGE, top_k=300, space_id=SPACE)
        list(collection.iter_vectors(Modality.IMAGE))
        collection.upsert([new_item("0", image_vector=np.ones(64)), new_item("new", image_vector=np.ones(64))],
                          space_id=SPACE)  # fmt: skip
        collection.delete(["1", "2", "3"])


def test_the_undamaged_collection_passes(database: Path, tmp_path: Path) -> None:
    exercise(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9])
def test_a_database_cut_short_is_reported_by_name(database: Path, tmp_path: Path, share: float) -> None:
    os.truncate(database, int(database.stat().st_size * share))
    with opened(tmp_path) as catalog, pytest.raises(CorruptCollection, match=r"^collection photos") as caught:
        catalog.get("photos")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database_is_reported_by_name(database: Path, tmp_path: Path) -> None:
    database.write_bytes(np.random.default_rng(1).bytes(100_000))
    with opened(tmp_path) as catalog, pytest.raises(CorruptCollection, match=r"collection photos.*not a database"):
        catalog.get("photos")


def test_a_database_that_is_missing_is_reported_by_name(database: Path, tmp_path: Path) -> None:
    database.unlink()
    with opened(tmp_path) as catalog, pytest.raises(CollectionError, match=r"collection photos.*cannot be opened"):
        catalog.get("photos")
    assert not database.exists()


@pytest.mark.parametrize("seed", range(12))
def test_a_database_with_garbled_bytes_never_ends_in_anything_but_a_clear_error(
    database: Path,
    tmp_path: Path,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    size = database.stat().st_size
    with database.open("r+b") as file:
        for _ in range(1 + seed):
            file.seek(int(rng.integers(100, size - 500)))
            file.write(rng.bytes(int(rng.integers(1, 500))))
    with suppress(CorruptCollection):
        exercise(tmp_path)


@pytest.mark.parametrize("column", ["id", "uri", "caption", "metadata", "content_hash"])
def test_a_bit_flipped_in_a_stored_text_is_reported_by_name(tmp_path: Path, column: str) -> None:
    rng = np.random.default_rng(3)
    texts = {name: "".join(rng.choice(list("abcdefgh"), size=40)) for name in ("id", "uri", "caption", "metadata")}
    with opened(tmp_path) as catalog:
        item = new_item(
            texts["id"], image=b"picture", caption=texts["caption"], uri=texts["uri"], metadata={"x": texts["metadata"]}
        )
        catalog.create("photos", space_id=SPACE, dimension=8).upsert([item], space_id=SPACE)
        texts["content_hash"] = catalog.get("photos").get(texts["id"]).content_hash
    database = tmp_path / "collections" / "photos" / "collection.db"
    whole = database.read_bytes()
    for _ in range(20):
        position, bit = int(rng.integers(40)), 1 << int(rng.integers(8))
        text = texts[column].encode()
        flipped = text[:position] + bytes([text[position] ^ bit]) + text[position + 1 :]
        # Every copy, as the truth and indexes over it may both hold it.
        database.write_bytes(whole.replace(text, flipped))
        with opened(tmp_path) as catalog, pytest.raises(CorruptCollection, match=r"^collection photos: .*damaged"):
            catalog.get("photos").list()


@pytest.mark.parametrize("column", ["created_s", "updated_s"])
def test_a_bit_flipped_in_a_stored_time_is_reported_by_name_and_mended_by_storing_again(
    database: Path, tmp_path: Path, column: str
) -> None:
    with opened(tmp_path) as catalog:
        catalog.get("photos").upsert([new_item("7", image_vector=np.ones(64))], space_id=SPACE)
    with edited(database) as connection:
        (time_s,) = connection.execute(f"SELECT {column} FROM items WHERE id = '7'").fetchone()  # noqa: S608
        (bits,) = struct.unpack("<q", struct.pack("<d", time_s))
        (flipped_s,) = struct.unpack("<d", struct.pack("<q", bits ^ 1))
        connection.execute(f"UPDATE items SET {column} = ? WHERE id = '7'", (flipped_s,))  # noqa: S608
    with opened(tmp_path) as catalog:
        with pytest.raises(CorruptCollection, match="collection photos: the row of item '7' is damaged"):
            catalog.get("photos").get("7")
        catalog.get("photos").upsert([new_item("7", image_vector=np.ones(64))], space_id=SPACE)
        catalog.get("photos").get("7")


def test_a_bit_flipped_in_a_stored_vector_is_reported_by_name(database: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    with opened(tmp_path) as catalog:
        vector = catalog.get("photos").get_vector("7", Modality.IMAGE).tobytes()
    whole = database.read_bytes()
    assert whole.count(vector) == 1
    for _ in range(30):
        flipped = bytearray(vector)
        flipped[rng.integers(len(vector))] ^= 1 << int(rng.integers(8))
        database.write_bytes(whole.replace(vector, flipped))
        with opened(tmp_path) as catalog, pytest.raises(CorruptCollection, match="vector of item number 8 is damaged"):
            catalog.get("photos").get_vector("7", Modality.IMAGE)


@contextmanager
def edited(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database)) as connection:
        yield connection
        connection.commit()


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"\0" * 255, "item number 7 has 255 bytes, but dimension 64 needs 256"),
        (b"", "item number 7 has 0 bytes"),
        (np.full(64, np.nan, dtype="<f4").tobytes(), "item number 7 is damaged"),
        (np.full(64, 1e38, dtype="<f4").tobytes(), "item number 7 is damaged"),
        (b"\0" * 256, "item number 7 is damaged"),
    ],
)
def test_a_vector_that_cannot_be_ours_is_reported_with_its_item(
    database: Path,
    tmp_path: Path,
    blob: bytes,
    message: str,
) -> None:
    with edited(database) as connection:
        connection.execute("UPDATE vectors SET vector = ? WHERE item = 7", (blob,))
    with opened(tmp_path) as catalog, pytest.raises(CorruptCollection, match=rf"collection photos.*{message}"):
        catalog.get("photos")


@pytest.mark.parametrize("text", ["{", "NaN}", "[" * 100_000])
def test_metadata_that_is_not_json_is_reported_with_its_item(database: Path, tmp_path: Path, text: str) -> None:
    with edited(database) as connection:
        connection.execute("UPDATE items SET metadata = ? WHERE id = '7'", (text,))
    with opened(tmp_path) as catalog, pytest.raises(CorruptCollection, match="the metadata of item '7' is damaged"):
        catalog.get("photos").get("7")


def test_text_that_is_not_unicode_is_damage(database: Path, tmp_path: Path) -> None:
    with edited(database) as connection:
        connection.execute("UPDATE items SET caption = CAST(x'ff' AS TEXT) WHERE id = '7'")
    with opened(tmp_path) as catalog, pytest.raises(CorruptCollection, match=r"collection photos.*damaged"):
        catalog.get("photos").get("7")


def test_damaged_table_definitions_are_reported_by_name(database: Path, tmp_path: Path) -> None:
    content = database.read_bytes()
    database.write_bytes(content.replace(b"revision INTEGER", b"revision \xff\xfe\xfd[NTE"))
    with (
        opened(tmp_path) as catalog,
        pytest.raises(CorruptCollection, match="collection photos: its database is damag"),
    ):
        catalog.get("photos")


@pytest.mark.parametrize("name", ["../../escape", "", "ab", "A" * 64])
def test_a_damaged_name_of_a_picture_never_leads_anywhere(database: Path, tmp_path: Path, name: str) -> None:
    with edited(database) as connection:
        connection.execute("UPDATE items SET blob = ? WHERE id = '7'", (name,))
    with opened(tmp_path) as catalog:
        with pytest.raises(CorruptCollection, match="collection photos: the name of a stored picture is damaged"):
            catalog.get("photos").get_image("7")
        assert catalog.get("photos").delete(["7"]) == 1


@pytest.mark.parametrize("column", ["caption", "content_hash", "created_s"])
def test_a_row_whose_types_changed_is_reported_with_its_item(database: Path, tmp_path: Path, column: str) -> None:
    with edited(database) as connection:
        strict = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'items'").fetchone()[0]
        loose = strict.replace(" STRICT", "").replace(f"{column} TEXT", column).replace(f"{column} REAL", column)
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'items'", (loose,))
    with edited(database) as connection:
        connection.execute(f"UPDATE items SET {column} = x'00' WHERE id = '7'")  # noqa: S608
    with opened(tmp_path) as catalog:
        with pytest.raises(CorruptCollection, match="the row of item '7' is damaged"):
            catalog.get("photos").get("7")
        catalog.get("photos").upsert([new_item("7", image_vector=np.ones(64))], space_id=SPACE)
        assert isinstance(catalog.get("photos").get("7").created_s, float)


def test_a_database_of_a_newer_version_is_refused_and_left_alone(database: Path, tmp_path: Path) -> None:
    with edited(database) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = database.read_bytes()
    message = f"collection photos has schema {SCHEMA_VERSION + 1}, but .* reads up to {SCHEMA_VERSION}"
    with opened(tmp_path) as catalog, pytest.raises(CorruptCollection, match=message):
        catalog.get("photos")
    assert database.read_bytes() == before


def test_an_older_schema_is_brought_forward_step_by_step(database: Path) -> None:
    steps = {
        SCHEMA_VERSION: "ALTER TABLE items ADD COLUMN a TEXT NOT NULL DEFAULT 'x'",
        SCHEMA_VERSION + 1: "CREATE TABLE b (c TEXT); INSERT INTO b SELECT a FROM items WHERE id = '7'",
    }
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        migrate(connection, "it", steps)
        migrate(connection, "it", steps)
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 2,)
        assert connection.execute("SELECT c FROM b").fetchall() == [("x",)]


def test_a_step_that_fails_leaves_the_schema_as_it_was(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.Error):
            migrate(connection, "it", {SCHEMA_VERSION: "CREATE TABLE b (c TEXT); SELECT nonsense FROM nowhere"})
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'b'").fetchone() == (0,)


def test_every_schema_below_the_newest_has_a_step_forward() -> None:
    assert sorted(MIGRATIONS) == list(range(1, SCHEMA_VERSION))


def assert_only_a_is_there(collection: Collection) -> None:
    assert [item.id for item in collection.list()] == ["a"]
    hits = collection.search(np.ones((1, 8)), modality=Modality.IMAGE, top_k=9, space_id=SPACE)[0]
    assert [hit.item.id for hit in hits] == ["a"]
    assert collection.get_image("a") == b"picture"


@pytest.mark.parametrize(
    ("pragma", "undo", "message"),
    [
        ("max_page_count = 12", "max_page_count = 1000000", "collection photos: the disk is full"),
        ("query_only = ON", "query_only = OFF", "collection photos: the data folder is read-only"),
    ],
)
def test_a_full_or_read_only_disk_is_a_clear_error_and_keeps_the_old_state(
    collection: Collection,
    catalog: Catalog,
    pragma: str,
    undo: str,
    message: str,
) -> None:
    collection.upsert([new_item("a", image=b"picture")], space_id=SPACE)
    writer = collection._state.database._writer
    writer.execute(f"PRAGMA {pragma}")
    many = [new_item(f"{i}", caption="long " * 1000, image=b"%d" % i) for i in range(100)]
    with pytest.raises(CollectionError, match=message):
        collection.upsert(many, space_id=SPACE)
    assert_only_a_is_there(collection)
    assert len(list(catalog._folder.glob("photos/blobs/*/*/*"))) == 1
    writer.execute(f"PRAGMA {undo}")
    collection.upsert(many, space_id=SPACE)
    assert collection.stats().items == 101


def test_a_disk_too_full_for_pictures_is_a_clear_error_and_keeps_the_old_state(
    collection: Collection,
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collection.upsert([new_item("a", image=b"picture")], space_id=SPACE)

    def full(paths: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("twinlens.index.blobs.sync_all", full)
    with pytest.raises(CollectionError, match="collection photos: cannot store pictures: no space left on device"):
        collection.upsert([new_item("a", image=b"new"), new_item("b", image=b"other")], space_id=SPACE)
    monkeypatch.undo()
    assert_only_a_is_there(collection)
    assert len([path for path in catalog._folder.glob("photos/blobs/*/*/*") if path.is_file()]) == 1


def test_engines_that_fail_to_follow_a_commit_are_built_again_from_the_truth(
    collection: Collection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collection.upsert([new_item("a", image=b"picture")], space_id=SPACE)

    def out_of_memory(*_: object) -> None:
        raise MemoryError

    engine = collection._state.current().engines[Modality.IMAGE]
    monkeypatch.setattr(type(engine), "upsert", out_of_memory)
    collection.upsert([new_item("b")], space_id=SPACE)
    monkeypatch.undo()
    assert collection.stats().image_vectors == 2
