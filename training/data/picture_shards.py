"""Lists the pictures in webdataset shards: tar files whose members of one key belong together (`7.jpg`, `7.cls`)."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from twinlens.client.example_files import known_label
from twinlens.encoders.sniff import IMAGE_SUFFIXES
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pictures import (
    ListedPicture,
    PictureListing,
    class_names_beside,
    problem_of_class,
)
from twinlens.training.data.regular_file import open_regular
from twinlens.training.errors import first_line


def list_shards(shards: Sequence[Path]) -> PictureListing:
    """The pictures in all shards, in order; a `.cls` file beside one holds the number or the name of its class.

    It is empty, or -1, where the class is unknown. Only headers and classes are read. Names of classes are taken from a
    `classes.json` beside the shards or one folder above.

    Raises:
        DataError: naming the shard that is not a plain tar file, is cut off or damaged, or has a class that is no text.
    """
    pictures = [picture for shard in shards for picture in _list(shard)]
    # Absolute, so that a shard named from within its folder has one above too.
    folders = dict.fromkeys(folder for shard in shards for folder in shard.absolute().parents[:2])
    return PictureListing(pictures, class_names_beside(*folders), labels_from="the .cls files")


def _list(shard: Path) -> list[ListedPicture]:
    labels: dict[str, str | None] = {}
    members: list[tuple[str, tarfile.TarInfo]] = []
    try:
        with open_regular(shard) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if not member.isreg() or member.issparse() or path.name.startswith("."):
                    continue
                # As webdataset: what comes before the first dot of the file's name is the key.
                stem, _, kind = path.name.partition(".")
                key = str(path.with_name(stem))
                if kind == "cls":
                    file = tar.extractfile(member)
                    label = "" if file is None else file.read(4096).decode()
                    if problem := problem_of_class(label):
                        raise DataError(f"{shard}: the class of {member.name} {problem}")
                    labels[key] = known_label(label)
                elif path.suffix.lower() in IMAGE_SUFFIXES:
                    members.append((key, member))
            _check_end(stream, tar.offset, shard)
    except UnicodeDecodeError:
        raise DataError(f"{shard}: the class of {member.name} is not text") from None
    except OSError as error:
        raise DataError(f"{shard} cannot be read: {error.strerror or error}") from None
    except tarfile.TarError as error:
        raise DataError(f"{shard} is not a whole, uncompressed tar file: {first_line(error)}") from None
    return [
        ListedPicture(f"{shard.name}/{member.name}", labels.get(key), shard, member.offset_data, member.size)
        for key, member in members
    ]


def _check_end(stream: BinaryIO, end: int, shard: Path) -> None:
    """Python's reader takes the end of the file, and a header that is none, for the end of the pictures.

    Args:
        stream: The shard.
        end: Where the reader stopped.
        shard: Its path.

    Raises:
        DataError: if no empty block is there, which is how a tar file ends.
    """
    stream.seek(end)
    block = stream.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise DataError(f"{shard} is cut off: the mark that ends a tar file is missing; fetch or write it again")
    if any(block):
        raise DataError(f"{shard} is damaged at byte {end:,}; fetch or write it again")
