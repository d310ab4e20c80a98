"""Originals, stored once under the hash of their content."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from twinlens.index.durable import make_folder, sync_all
from twinlens.index.errors import CollectionError, CorruptCollection

_DIGEST = re.compile(r"[0-9a-f]{64}")
_WRITING = ".writing-"


def content_hash(data: bytes) -> str:
    """SHA-256 in hexadecimal, the name that content goes by."""
    return hashlib.sha256(data).hexdigest()


class BlobStore:
    """A local folder of blobs, `ab/cd/<sha256>`. Another kind of store would offer the same methods.

    A blob whose row is about to be committed must not be removed by whoever drops the last other reference to it.
    Such blobs are pinned: `hold` pins and writes, `discard` leaves pinned ones alone. While somebody copies the folder,
    `keep` puts all removals off until `release`.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Makes the folder if need be.

        Args:
            folder: Where blobs lie.
            name: What to call the collection in errors.
        """
        self._folder = folder
        self._name = name
        self._pins: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._keepers = 0
        self._put_off: set[str] = set()
        self._measuring = threading.Lock()
        self._measured: int | None = None
        self._grown = 0  # bytes since it was opened; guarded by the lock
        self._unsynced: Counter[Path] = Counter()  # folders in which writers make new names; guarded by the lock
        with self._clear_errors("open"):
            make_folder(folder)

    @contextmanager
    def hold(self, blobs: Iterable[tuple[str, bytes]]) -> Iterator[None]:
        """Puts blobs on disk and keeps them from being discarded until the block ends.

        Args:
            blobs: Hash and content of each.

        Raises:
            CollectionError: they cannot be written, as when the disk is full.
        """
        wanted = dict(blobs)
        with self._lock:
            self._pins.update(wanted.keys())
        try:
            with self._clear_errors("store"):
                self._write({digest: data for digest, data in wanted.items() if not self._holds(digest, data)})
                self._sync_what_others_wrote(wanted)
            yield
        finally:
            with self._lock:
                self._pins.subtract(wanted.keys())
                self._pins += Counter()  # drops those at zero

    def read(self, digest: str) -> bytes | None:
        """The content of a blob, or None where there is no such blob.

        Raises:
            CorruptCollection: the content is not what was stored.
            CollectionError: it cannot be read.
        """
        try:
            with self._clear_errors("read"):
                data = self._path(digest).read_bytes()
        except CollectionError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        if content_hash(data) != digest:
            raise CorruptCollection(f"{self._name}: the stored picture {digest} is damaged")
        return data

    def keep(self) -> None:
        """Puts off removals until `release`; any number of callers may have that at once."""
        with self._lock:
            self._keepers += 1

    def release(self, *, every: bool = False) -> set[str]:
        """Ends one `keep`, or all, and returns what may now be removed, unless a row names it again."""
        with self._lock:
            self._keepers = 0 if every else max(self._keepers - 1, 0)
            if self._keepers:
                return set()
            due, self._put_off = self._put_off, set()
            return due

    def discard(self, digests: Collection[str]) -> None:
        """Removes blobs that no row names. One that is pinned or cannot be removed stays until the next sweep."""
        for digest in digests:
            with self._lock, suppress(OSError):
                if self._keepers:
                    self._put_off.add(digest)
                elif digest not in self._pins:
                    path = self._path(digest)
                    size_bytes = path.stat().st_size
                    path.unlink()
                    self._grown -= size_bytes

    def files(self) -> Iterator[Path]:
        """Goes through all files that lie among the blobs, whatever they are."""
        with self._clear_errors("list"):
            for folder, _, names in os.walk(self._folder):
                yield from (Path(folder, name) for name in names)

    @property
    def total_bytes(self) -> int | None:
        """How many bytes all blobs have; None until `measure` has counted them."""
        return None if self._measured is None else max(self._measured + self._grown, 0)

    def measure(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Looks at every file once, unless that was done; from then on the sum is kept up.

        Args:
            stop: Asked often; True ends it, and nothing is known then.
        """
        with self._measuring:
            if self._measured is not None:
                return
            grown, sizes = self._grown, 0
            for path in self.files():
                if stop():
                    return
                with suppress(FileNotFoundError):  # removed meanwhile
                    sizes += path.stat().st_size
            self._measured = sizes - grown

    def is_pinned(self, name: str) -> bool:
        """Whether somebody is about to name a blob, or may be writing it under a name for the meantime."""
        with self._lock:
            return name in self._pins or (bool(self._pins) and name.startswith(_WRITING))

    def size_of(self, digest: str) -> int | None:
        """How many bytes a blob has; None where there is no such blob."""
        with self._clear_errors("read"):
            try:
                return self._path(digest).stat().st_size
            except FileNotFoundError:
                return None

    def sweep(self, named: Collection[str]) -> None:
        """Removes what an interrupted write or removal left behind. Nothing may be written meanwhile.

        Args:
            named: Every hash that a row names.
        """
        with self._clear_errors("tidy"):
            for path in self._folder.rglob("*"):
                if path.is_file() and path.name not in named:
                    path.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):  # never a path made of damaged text
            raise CorruptCollection(f"{self._name}: the name of a stored picture is damaged")
        return self._folder / digest[:2] / digest[2:4] / digest

    def _holds(self, digest: str, data: bytes) -> bool:
        """Whether a blob is there and whole: storing it again mends one that is not."""
        try:
            return self._path(digest).read_bytes() == data
        except OSError:  # not there, or where the disk cannot be read any more
            return False

    def _write(self, blobs: dict[str, bytes]) -> None:
        """Writes aside, syncs, renames, syncs the folders, each for all before the next."""
        if not blobs:
            return
        folders = set[Path]()
        for digest in blobs:
            folder = self._path(digest).parent
            folders |= {folder} if folder.is_dir() else self._folders(digest)
        with self._lock:
            self._unsynced.update(folders)  # after an error they stay there: nobody knows what is on disk
        aside: dict[str, Path] = {}
        try:
            for digest, data in blobs.items():
                folder = self._path(digest).parent
                folder.mkdir(parents=True, exist_ok=True)
                descriptor, name = tempfile.mkstemp(dir=folder, prefix=_WRITING)
                aside[digest] = Path(name)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
            sync_all(aside.values())
            for digest, data in blobs.items():
                with self._lock:
                    self._grown += 0 if self._path(digest).exists() else len(data)
                    aside[digest].rename(self._path(digest))
                del aside[digest]
        finally:
            for path in aside.values():
                path.unlink(missing_ok=True)
        sync_all(folders)
        with self._lock:
            self._unsynced.subtract(folders)
            self._unsynced += Counter()  # drops those at zero

    def _sync_what_others_wrote(self, digests: Iterable[str]) -> None:
        """Makes the names of blobs durable that were there already, because somebody else is about to do so."""
        with self._lock:
            if not self._unsynced:
                return
            folders = {folder for digest in digests for folder in self._folders(digest) if folder in self._unsynced}
        sync_all(folders)

    def _folders(self, digest: str) -> set[Path]:
        """The folders whose entries lead to a blob."""
        folder = self._path(digest).parent
        return {folder, folder.parent, self._folder}

    @contextmanager
    def _clear_errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = (error.strerror or "input/output error").lower()
            raise CollectionError(f"{self._name}: cannot {action} pictures: {reason}") from error
