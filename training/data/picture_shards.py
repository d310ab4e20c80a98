"""Lists the pictures in webdataset shards: tar files whose members of one key belong together (`7.jpg`, `7.cls`)."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from twinlens.encoders.sniff import IMAGE_SUFFIXES
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pictures import ListedPicture, PictureListing, class_names_beside, known_label
from twinlens.training.errors import first_line


def list_shards(shards: Sequence[Path]) -> PictureListing:
    """The pictures in all shards, in order; a `.cls` file beside one holds the number or the name of its class.

    It is empty, or -1, where the class is unknown. Only headers and classes are read. Names of classes are taken from a
    `classes.json` beside the shards or one folder above.

    Raises:
        DataError: naming the shard that is not a plain tar file, is cut off, or has a class that is not text.
    """
    pictures = [picture for shard in shards for picture in _list(shard)]
    # Absolute, so that a shard named from within its folder has one above too.
    folders = dict.fromkeys(folder for shard in shards for folder in shard.absolute().parents[:2])
    return PictureListing(pictures, class_names_beside(*folders))


def _list(shard: Path) -> list[ListedPicture]:
    labels: dict[str, str | None] = {}
    members: list[tuple[str, tarfile.TarInfo]] = []
    try:
        with tarfile.open(shard, "r:") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if not member.isreg() or member.issparse() or path.name.startswith("."):
                    continue
                # As webdataset: what comes before the first dot of the file's name is the key.
                stem, _, kind = path.name.partition(".")
                key = str(path.with_name(stem))
                if kind == "cls":
                    file = tar.extractfile(member)
                    labels[key] = None if file is None else known_label(file.read(4096).decode())
                elif path.suffix.lower() in IMAGE_SUFFIXES:
                    members.append((key, member))
    except UnicodeDecodeError:
        raise DataError(f"{shard}: the class of {member.name} is not text") from None
    except (tarfile.TarError, OSError) as error:
        raise DataError(f"{shard} is not a whole, uncompressed tar file: {first_line(error)}") from None
    return [
        ListedPicture(f"{shard.name}/{member.name}", labels.get(key), shard, member.offset_data, member.size)
        for key, member in members
    ]
