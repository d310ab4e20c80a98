"""Files of a bundle between this machine and an fsspec file system, in bounded memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import FileEntry
from twinlens.encoders.stored_bundle import StoredBundle

# The file systems' own get_file keeps half a gigabyte in flight for a large file (s3fs: ten parts of 50 MiB).
_PART: Final = 16 * 1024 * 1024
_AT_ONCE: Final = 6

# Told how many more bytes have arrived; called from several threads.
OnBytes = Callable[[int], None]


def ignore_bytes(_: int) -> None:
    """For whoever does not want to know how far it is."""


def sizes(bundle: StoredBundle) -> dict[str, int]:
    """The size of every file of a bundle by its path relative to it; none where there is nothing.

    Raises:
        Exception: of the file system's own kind, if it cannot be reached.
    """
    try:
        found = bundle.fs.find(bundle.path, detail=True)
    except FileNotFoundError:
        return {}
    prefix = bundle.path.strip("/") + "/"
    return {path.strip("/").removeprefix(prefix): int(entry["size"]) for path, entry in found.items()}


def download(
    source: StoredBundle, entries: Sequence[FileEntry], folder: Path, on_bytes: OnBytes = ignore_bytes
) -> None:
    """Copies the files to the new folder `folder`; their digests are for the caller to check.

    Args:
        source: The bundle.
        entries: The files with their sizes.
        folder: Made, with all folders inside.
        on_bytes: Told of progress.

    Raises:
        BundleError: if a file is missing there or of another size.
        OSError: if the disk is full or read-only.
        Exception: of the file system's own kind, if it cannot be read.
    """
    there = sizes(source)
    for entry in entries:
        if entry.path not in there:
            raise BundleError(f"bundle {source.shown} is incomplete: {entry.path} is missing")
        if (size := there[entry.path]) != entry.size:
            msg = f"bundle {source.shown} is corrupt: {entry.path} has {size} bytes, {entry.size} expected"
            raise BundleError(msg)
    folder.mkdir()
    for entry in entries:
        (folder / entry.path).parent.mkdir(parents=True, exist_ok=True)
        with (folder / entry.path).open("wb") as stream:
            os.truncate(stream.fileno(), entry.size)
    stop = threading.Event()

    def copy(part: tuple[FileEntry, int, int]) -> None:
        entry, start, end = part
        if stop.is_set():
            return
        whole = (start, end) == (0, entry.size)
        data = source.fs.cat_file(f"{source.path}/{entry.path}", **({} if whole else {"start": start, "end": end}))
        if len(data) != end - start:
            raise BundleError(f"bundle {source.shown} changed while {entry.path} was read")
        with (folder / entry.path).open("r+b") as stream:
            stream.seek(start)
            stream.write(data)
        on_bytes(len(data))

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="download") as pool:
        futures = [pool.submit(copy, part) for part in _parts(entries)]
        try:
            for future in futures:
                future.result()
        finally:
            stop.set()


def upload(folder: Path, entries: Sequence[FileEntry], target: StoredBundle, on_bytes: OnBytes = ignore_bytes) -> None:
    """Copies files of the bundle in `folder` to the file system, one after another.

    Args:
        folder: The bundle's folder.
        entries: The files.
        target: Where to.
        on_bytes: Told of progress.

    Raises:
        Exception: of the file system's own kind, if it cannot be written.
    """
    for entry in entries:
        path = f"{target.path}/{entry.path}"
        target.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with (folder / entry.path).open("rb") as source, target.fs.open(path, "wb", block_size=_PART) as stream:
            while data := source.read(_PART):
                stream.write(data)
                on_bytes(len(data))


def _parts(entries: Sequence[FileEntry]) -> Iterator[tuple[FileEntry, int, int]]:
    for entry in entries:
        for start in range(0, entry.size, _PART):
            yield entry, start, min(start + _PART, entry.size)
