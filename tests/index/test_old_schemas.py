"""Collections of every schema there ever was open as they are; those of schemas to come are refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support.items import SPACE, new_item
from tests.support.old_databases import OLD_SCHEMAS, picture, write_old_collection
from tests.support.oracle import assert_exact
from twinlens.index.catalog import Catalog
from twinlens.index.errors import CorruptCollection
from twinlens.index.item import Modality
from twinlens.index.schema import SCHEMA_VERSION
from twinlens.index.vectors import unit_vectors

VECTORS = {f"item {i}": v for i, v in enumerate(unit_vectors(np.random.default_rng(4).standard_normal((60, 8)), 8))}


@pytest.fixture(params=sorted(OLD_SCHEMAS))
def schema(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def definitions(database: Path) -> list[tuple[str, str, str]]:
    """All that a database is made of, whatever the spacing of the statements that made it."""
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT type, name, tbl_name FROM sqlite_schema ORDER BY 1, 2").fetchall()
        columns = [
            (name, f"{column[1]} {column[2]} {column[3]} {column[4]}", f"{column[5]}")
            for _, name, _ in rows
            for column in connection.execute(f"PRAGMA table_xinfo({name!r})")
        ]
        keys = [
            (name, f"{key[2:7]}", "references")
            for _, name, _ in rows
            for key in connection.execute(f"PRAGMA foreign_key_list({name!r})")
        ]
    return [*rows, *columns, *sorted(keys)]


def test_a_collection_of_an_old_schema_has_all_that_was_in_it_and_goes_on(tmp_path: Path, schema: int) -> None:
    database = write_old_collection(tmp_path, "photos", schema, SPACE, VECTORS)
    for turn in range(2):  # brought forward by the first opening, found so by the second
        with closing(Catalog(tmp_path)) as catalog:
            collection = catalog.get("photos")
            stats = collection.stats()
            assert (stats.items, stats.image_vectors, stats.text_vectors) == (60 + turn, 60 + turn, 60)
            assert stats.variants == (("image fp32 on cpu",) if schema >= 2 else ())
            item = collection.get("item 7")
            assert (item.uri, item.caption, item.metadata) == ("file:///item 7", "caption 8", {"number": 8})
            assert (item.created_s, item.updated_s, collection.get_image("item 7")) == (2.5, 2.5, picture("item 7"))
            for modality in Modality:
                query = np.random.default_rng(turn).standard_normal(8)
                hits = collection.search(query[np.newaxis], modality=modality, top_k=7, space_id=SPACE)[0]
                known = VECTORS if not turn or modality == Modality.TEXT else {**VECTORS, "new": np.ones(8)}
                assert_exact(query, known, 7, [(hit.item.id, hit.score) for hit in hits])
            collection.upsert([new_item("new", image_vector=np.ones(8))], space_id=SPACE)
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_an_old_collection_ends_with_the_same_tables_as_a_new_one(tmp_path: Path, schema: int) -> None:
    old = write_old_collection(tmp_path, "old", schema, SPACE, VECTORS)
    with closing(Catalog(tmp_path)) as catalog:
        catalog.get("old")
        catalog.create("new", space_id=SPACE, dimension=8)
    assert definitions(old) == definitions(tmp_path / "collections" / "new" / "collection.db")


def test_an_old_collection_whose_upgrade_was_cut_off_is_upgraded_by_the_next_opening(
    tmp_path: Path, schema: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = write_old_collection(tmp_path, "photos", schema, SPACE, VECTORS)
    with monkeypatch.context() as patched, closing(Catalog(tmp_path)) as catalog:
        steps = {**dict.fromkeys(range(schema, SCHEMA_VERSION), "CREATE TABLE half (a TEXT); SELECT nonsense")}
        patched.setattr("twinlens.index.schema.migrate.__defaults__", (steps,))
        with pytest.raises(CorruptCollection, match="collection photos"):
            catalog.get("photos")
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema,)
    with closing(Catalog(tmp_path)) as catalog:
        assert catalog.get("photos").stats().items == 60


@pytest.mark.parametrize("ahead", [1, 7, 2**31 - 1 - SCHEMA_VERSION])
def test_a_newer_schema_is_refused_by_name_and_the_rest_of_the_folder_serves(tmp_path: Path, ahead: int) -> None:
    with closing(Catalog(tmp_path)) as catalog:
        catalog.create("photos", space_id=SPACE, dimension=8)
        catalog.create("others", space_id=SPACE, dimension=8)
    folder = tmp_path / "collections" / "photos"
    with closing(sqlite3.connect(folder / "collection.db")) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + ahead}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with closing(Catalog(tmp_path)) as catalog:
        message = rf"^collection photos has schema {SCHEMA_VERSION + ahead}, .* up to {SCHEMA_VERSION}: use a newer"
        with pytest.raises(CorruptCollection, match=message):
            catalog.get("photos")
        assert catalog.get("others").stats().items == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
