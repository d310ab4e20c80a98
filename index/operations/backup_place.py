"""Where backups are kept: a folder, or an object store through fsspec.

backups/<id>/collection.db, backup.json    one backup; it counts once backup.json is there, which is written last
pictures/ab/<sha256>                       the originals of all backups at this place
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from twinlens.index.durable import make_folder, sync_all
from twinlens.index.errors import CollectionError, InvalidArgument, PlaceUnavailable

BACKUPS = "backups"
PICTURES = "pictures"

PART_BYTES = 16 * 2**20
"""A file is read and written in parts of this size."""

_LEAST_BLOCK_BYTES = 16 * 2**20
_MOST_BLOCKS = 9_000  # object stores take at most 10,000 parts of a file
_AT_ONCE = 8


class BackupPlace:
    """Files by their path relative to the place, such as `backups/one/backup.json`.

    What `write_all` returned for is there after a power cut, and never half of it before.
    """

    def __init__(self, root: str, *, holds: str = "backups") -> None:
        """Opens the place; nothing is made.

        Args:
            root: A folder or an fsspec address.
            holds: What to say in errors that it is for.

        Raises:
            InvalidArgument: the address is empty, or of a kind for which no file system is installed.
            PlaceUnavailable: it cannot be reached.
        """
        import fsspec  # noqa: PLC0415 - who makes no backups does without it

        if root.strip() in {"", "file://", "local://"}:  # a variable that was not set: it would be the folder we are in
            raise InvalidArgument(f"the place for {holds} is empty: {root!r}")
        self.root = root
        self._holds = holds
        with self.clear_errors("opened"):
            try:
                # Remembered listings would hide what others write meanwhile.
                self._fs, path = fsspec.url_to_fs(root, use_listings_cache=False)
            except (ImportError, ValueError) as error:
                raise InvalidArgument(f"the place for {holds} {root}: {' '.join(str(error).split())[:200]}") from error
        self._root = path.rstrip("/")
        protocols = (self._fs.protocol,) if isinstance(self._fs.protocol, str) else self._fs.protocol
        self.local = Path(path) if {"file", "local"} & set(protocols) else None

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder, in order; none where it is not there."""
        return [name for name, entry in self._entries(path).items() if entry["type"] == "directory"]

    def names(self, path: str) -> list[str]:
        """The names of all that is in a folder, in order; none where it is not there."""
        return list(self._entries(path))

    def sizes(self, path: str) -> Mapping[str, int]:
        """The sizes of the files in a folder by their names; none where it is not there."""
        return {name: int(entry["size"]) for name, entry in self._entries(path).items() if entry["type"] == "file"}

    def read(self, path: str) -> bytes | None:
        """A small file; None where it is not there."""
        with self.clear_errors("read"):
            if self.local is not None and not (self.local / path).is_file():
                return None  # nor a pipe, for which one would wait, or a device, which never ends
            try:
                return bytes(self._fs.cat_file(self._at(path)))
            except FileNotFoundError:
                return None

    def copy_out(self, path: str, target: Path, size_bytes: int) -> Iterator[bytes]:
        """Copies a file to this machine and yields each part of it once it is written; a shorter one ends early.

        Once all are taken, the copy is on disk. What goes wrong with the target is an OSError.
        """
        with target.open("wb") as file:
            for start in range(0, size_bytes, PART_BYTES):
                with self.clear_errors("read"):
                    part = self._fs.cat_file(self._at(path), start=start, end=min(start + PART_BYTES, size_bytes))
                file.write(part)
                yield part
            file.flush()
            os.fsync(file.fileno())

    def copy_in(self, source: Path, path: str) -> Iterator[bytes]:
        """Copies a file of this machine to the place, which is not a folder, and yields each part once it is sent."""
        block = max(_LEAST_BLOCK_BYTES, -(-source.stat().st_size // _MOST_BLOCKS))
        with self.clear_errors("written"), self._fs.open(self._at(path), "wb", block_size=block) as copy:
            for part in parts_of(source):
                copy.write(part)
                yield part

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Writes small files, side by side."""
        with self.clear_errors("written"):
            if self.local is None:
                self._side_by_side(lambda path: self._fs.pipe_file(self._at(path), files[path]), files)
                return
            targets = [self.local / path for path in files]
            for folder in {target.parent for target in targets}:
                make_folder(folder)
            with _aside(targets) as asides:
                for aside, data in zip(asides, files.values(), strict=True):
                    aside.write_bytes(data)

    def read_all(self, paths: Mapping[str, Any]) -> dict[str, bytes | None]:
        """Reads small files, side by side; None for those that are not there."""
        return dict(zip(paths, self._side_by_side(self.read, paths), strict=True))

    def remove_all(self, paths: Sequence[str]) -> None:
        """Removes files; one that is not there is no error."""

        def remove(path: str) -> None:
            with suppress(FileNotFoundError):
                self._fs.rm_file(self._at(path))

        with self.clear_errors("tidied"):
            self._side_by_side(remove, paths)

    def remove_tree(self, path: str) -> None:
        """Removes a folder with all that is below it, if it is there."""
        with self.clear_errors("tidied"), suppress(FileNotFoundError):
            if self.local is not None:
                shutil.rmtree(self.local / path)  # fsspec would take a `*` in the place's name for a pattern
            else:
                self._fs.rm(self._at(path), recursive=True)

    def remove_folder(self, path: str) -> None:
        """Removes a folder with all files in it, if it is there."""
        with self.clear_errors("tidied"):
            if self.local is not None:
                shutil.rmtree(self.local / path, ignore_errors=True)
            else:
                for name in self.sizes(path):
                    self._fs.rm_file(self._at(f"{path}/{name}"))

    def remove_empty_folder(self, path: str) -> None:
        """Removes a folder if it is there and nothing is in it; on an object store it was gone with what was in it."""
        if self.local is not None:
            with suppress(OSError):
                (self.local / path).rmdir()

    @contextmanager
    def clear_errors(self, what: str) -> Iterator[None]:
        """Turns whatever the block raises into a line that says what could not be done with what is here."""
        try:
            yield
        except CollectionError:
            raise
        except Exception as error:  # each file system raises exceptions of its own
            if isinstance(error, OSError) and error.strerror:
                reason = error.strerror.lower()
            else:
                reason = " ".join(str(error).split())[:200] or type(error).__name__
            message = f"{self._holds} at {self.root} cannot be {what}: {reason}"
            raise PlaceUnavailable(message, self._holds) from error

    def _entries(self, path: str) -> dict[str, Mapping[str, Any]]:
        with self.clear_errors("listed"):
            try:
                found = self._fs.ls(self._at(path), detail=True)
            except FileNotFoundError:
                return {}
        entries = {str(entry["name"]).rstrip("/").rpartition("/")[2]: entry for entry in found}
        return {name: entries[name] for name in sorted(entries) if name}

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _side_by_side(self, call: Callable[[str], Any], paths: Collection[str]) -> list[Any]:
        if self.local is not None or len(paths) < 2:
            return [call(path) for path in paths]
        with ThreadPoolExecutor(min(_AT_ONCE, len(paths))) as pool:  # these threads only wait for the network
            return list(pool.map(call, paths))


def parts_of(file: Path) -> Iterator[bytes]:
    """Reads a file of this machine in parts."""
    with file.open("rb") as opened:
        while part := opened.read(PART_BYTES):
            yield part


@contextmanager
def _aside(targets: Sequence[Path]) -> Iterator[Sequence[Path]]:
    """Paths beside the targets for the block to fill; they are synced and take the targets' names at the end."""
    asides: list[Path] = []
    try:
        for target in targets:
            descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".writing-")
            os.close(descriptor)
            asides.append(Path(name))
        yield asides
        sync_all(asides)
        for aside, target in zip(asides, targets, strict=True):
            aside.rename(target)
        sync_all({target.parent for target in targets})
    finally:
        for aside in asides:
            aside.unlink(missing_ok=True)
