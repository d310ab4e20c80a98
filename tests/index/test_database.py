from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from twinlens.index.database import Database, create_database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "collection.db"
    create_database(made, "it").close()
    return made


def test_what_is_committed_is_on_disk(path: Path) -> None:
    with closing(Database(path, "it")) as database, database.write() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "synced at every commit"


def test_a_new_database_is_filled_as_durably(tmp_path: Path) -> None:
    with closing(create_database(tmp_path / "new.db", "it")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_readers_cannot_write(path: Path) -> None:
    with (
        closing(Database(path, "it")) as database,
        database.read() as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM items")


def test_a_reader_that_ends_after_the_database_was_closed_closes_its_connection(path: Path) -> None:
    database = Database(path, "it")
    with database.read() as connection:
        connection.execute("SELECT count(*) FROM items").fetchone()
        database.close()
        assert connection.execute("SELECT count(*) FROM items").fetchone() == (0,)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_a_reader_that_ends_after_the_database_was_closed_leaves_its_files_alone(path: Path) -> None:
    """By then another database may have its name: SQLite looks for that once, then moves the log, then removes it."""
    database = Database(path, "it")
    with database.read() as connection:
        connection.execute("SELECT count(*) FROM items").fetchone()
        with database.write() as writer:
            writer.execute("CREATE TABLE later (value)")
        database.close()
        before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
        assert before["collection.db-wal"]
    after = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    assert {name: len(data) for name, data in after.items()} == {name: len(data) for name, data in before.items()}
    assert after["collection.db-wal"] == before["collection.db-wal"]
    assert after["collection.db"] == before["collection.db"]
    with closing(Database(path, "it")) as again, again.read() as connection:
        assert connection.execute("SELECT count(*) FROM later").fetchone() == (0,)
    assert [file.name for file in path.parent.iterdir()] == ["collection.db"]
