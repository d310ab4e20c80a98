"""One SQLite database: a writer, a pool of readers, and errors in the room's own words."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from twinlens.index import schema
from twinlens.index.errors import CollectionError, CorruptCollection
from twinlens.index.filters.sql import prepare

_KEPT_LOG_BYTES = 64 * 2**20  # a longer write-ahead log is cut back once it was moved into the database
# Before 3.41, SQLite takes its own JSON functions for unsafe in a schema, and indexes on metadata call them.
TRUSTED_SCHEMA = "OFF" if sqlite3.sqlite_version_info >= (3, 41) else "ON"
_NOT_DAMAGE = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the data folder is read-only",
    sqlite3.SQLITE_CANTOPEN: "its database cannot be opened (missing, or no permission)",
    sqlite3.SQLITE_PERM: "no permission to open its database",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_BUSY: "another program is using its database",
    sqlite3.SQLITE_LOCKED: "its database is locked",
    sqlite3.SQLITE_PROTOCOL: "its database is locked",
    sqlite3.SQLITE_NOMEM: "out of memory",
}


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turns SQLite's errors into ours; `name` says which collection is meant.

    Our statements are constant, so whatever SQLite does not blame on disk, memory or permission means a damaged file.

    Raises:
        CorruptCollection: the file is damaged.
        CollectionError: disk full, read-only, and the like; the last commit stands.
    """
    try:
        yield
    except sqlite3.ProgrammingError:
        raise  # ours to mend, not the file's fault
    except UnicodeDecodeError as error:  # a message of SQLite that quotes damaged text
        raise _damaged(name, "its tables cannot be read") from error
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        reason = _NOT_DAMAGE.get(code)
        if reason is not None:
            raise CollectionError(f"{name}: {reason}; what was stored before is unchanged") from error
        raise _damaged(name, " ".join(str(error).split())[:100]) from error


def is_out_of_room(error: CollectionError) -> bool:
    """Whether an error that `translated` raised may come of a full disk."""
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
    return code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}


class Database:
    """An open database. Any number of threads may read; callers take care that one writes at a time."""

    def __init__(self, path: Path, name: str) -> None:
        """Opens it and brings its schema up to date.

        Args:
            path: The file, which must exist.
            name: What to call it in errors, such as "collection photos".

        Raises:
            CorruptCollection: damaged, or of a newer schema.
            CollectionError: it cannot be opened.
        """
        self._path = path
        self._name = name
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._lock = threading.Lock()
        with translated(name):
            self._writer = _connect(path)
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                self._writer.execute("PRAGMA synchronous = FULL")
                self._writer.execute("PRAGMA foreign_keys = ON")
                self._writer.execute(f"PRAGMA journal_size_limit = {_KEPT_LOG_BYTES}")
                schema.migrate(self._writer, name)
            except BaseException:
                self._writer.close()
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Lends a connection for reading; what is read inside is one consistent moment."""
        with translated(self._name):
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                # One that could write would, if it is closed last, move the log into the database and remove the log by
                # its name. A reader that outlives `close` may do so when another database has that name already.
                connection = _connect(self._path, mode="ro")
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
            with self._lock:
                if not self._closed:
                    self._idle.append(connection)
                    return
            connection.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Lends the writer inside a transaction, committed to disk at the end, undone after an error."""
        with translated(self._name):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Moves the write-ahead log into the database, if the disk lets it, and closes all connections.

        What stays in the log is as durable there, and the next opening finds it.
        """
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for connection in idle:
            connection.close()
        try:
            with suppress(CollectionError), translated(self._name):
                self._writer.execute("PRAGMA busy_timeout = 0")  # somebody who still reads would not be waited for
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._writer.close()


def create_database(path: Path, name: str) -> sqlite3.Connection:
    """Makes a new database with its tables and returns a connection to fill it with; the caller closes it."""
    with translated(name):
        connection = _connect(path, mode="rwc")
        try:
            schema.create(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection


def _connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Opens a connection in autocommit mode; a missing file is not created unless the mode says so."""
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        prepare(connection)
        connection.execute(f"PRAGMA trusted_schema = {TRUSTED_SCHEMA}")
        connection.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _damaged(name: str, reason: str) -> CorruptCollection:
    return CorruptCollection(f"{name}: its database is damaged ({reason}); restore it from a copy")
