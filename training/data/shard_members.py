"""Walks through webdataset shards: tar files whose members of one key belong together (`7.jpg`, `7.txt`)."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from twinlens.training.data.errors import DataError
from twinlens.training.data.regular_file import open_regular
from twinlens.training.errors import first_line


@dataclass(frozen=True, slots=True)
class ShardMember:
    """A file in a shard.

    Attributes:
        name: Its path in the shard.
        key: What comes before the first dot of the file's name, with the folders before it.
        kind: What comes after that dot.
        suffix: What comes after the last dot, in lower case and with the dot.
        offset: Where its bytes begin in the shard.
        size: How many they are.
    """

    name: str
    key: str
    kind: str
    suffix: str
    offset: int
    size: int

    def text(self, stream: BinaryIO, most: int) -> str:
        """Its content, at most so many bytes of it.

        Raises:
            UnicodeDecodeError: if it is not UTF-8.
        """
        stream.seek(self.offset)
        return stream.read(min(self.size, most)).decode()


def shard_members(stream: BinaryIO, shard: Path | str) -> Iterator[ShardMember]:
    """The files of a shard, in order; only headers are read. Hidden and special ones are left out.

    Args:
        stream: The shard; it may be read in between.
        shard: What it is called.

    Raises:
        DataError: naming the shard that is not a plain tar file, is cut off or damaged; after all members before that.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined] # it would keep all that it has seen
                path = PurePosixPath(member.name)
                if not member.isreg() or member.issparse() or path.name.startswith("."):
                    continue
                # As webdataset: what comes before the first dot of the file's name is the key.
                stem, _, kind = path.name.partition(".")
                key = str(path.with_name(stem))
                yield ShardMember(member.name, key, kind, path.suffix.lower(), member.offset_data, member.size)
            _check_end(stream, tar.offset, shard)
    except OSError as error:
        raise DataError(f"{shard} cannot be read: {error.strerror or error}") from None
    except tarfile.TarError as error:
        raise DataError(f"{shard} is not a whole, uncompressed tar file: {first_line(error)}") from None


def open_shard(shard: Path) -> BinaryIO:
    """Opens a shard.

    Raises:
        DataError: naming it, if it cannot be opened.
    """
    try:
        return open_regular(shard)
    except OSError as error:
        raise DataError(f"{shard} cannot be read: {error.strerror or error}") from None


def _check_end(stream: BinaryIO, end: int, shard: Path | str) -> None:
    """Python's reader takes the end of the file, and a header that is none, for the end of the pictures.

    Args:
        stream: The shard.
        end: Where the reader stopped.
        shard: What it is called.

    Raises:
        DataError: if no empty block is there, which is how a tar file ends.
    """
    stream.seek(end)
    block = stream.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise DataError(f"{shard} is cut off: the mark that ends a tar file is missing; fetch or write it again")
    if any(block):
        raise DataError(f"{shard} is damaged at byte {end:,}; fetch or write it again")
