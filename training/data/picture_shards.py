"""Lists the pictures in webdataset shards: tar files whose members of one key belong together (`7.jpg`, `7.cls`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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
from twinlens.training.data.shard_members import ShardMember, open_shard, shard_members

_LONGEST_CLASS_FILE = 4096


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
    pictures = []
    with open_shard(shard) as stream:
        for member in shard_members(stream, shard):
            if member.kind == "cls":
                labels[member.key] = _label(member, stream, shard)
            elif member.suffix in IMAGE_SUFFIXES:
                pictures.append(member)
    return [
        ListedPicture(f"{shard.name}/{member.name}", labels.get(member.key), shard, member.offset, member.size)
        for member in pictures
    ]


def _label(member: ShardMember, stream: BinaryIO, shard: Path) -> str | None:
    try:
        label = member.text(stream, _LONGEST_CLASS_FILE)
    except UnicodeDecodeError:
        raise DataError(f"{shard}: the class of {member.name} is not text") from None
    if problem := problem_of_class(label):
        raise DataError(f"{shard}: the class of {member.name} {problem}")
    return known_label(label)
