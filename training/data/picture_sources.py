"""Reads the pictures of a run, whatever they lie in."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.cpus import allowed_cpus
from twinlens.encoders.decode import decode_picture
from twinlens.encoders.errors import InvalidImage
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.preprocess import fit
from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_set import UNLABELLED, PictureSet

_PICTURES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic"}


@dataclass(frozen=True)
class _Found:
    name: str
    data: bytes
    label: str | None


def load_pictures(
    path: Path,
    *,
    side: int,
    smallest: int,
    limit: int | None = None,
    max_unreadable_share: float = 0.01,
) -> PictureSet:
    """Decodes every picture once.

    Args:
        path: A folder of pictures; a folder with a folder per class; a folder of webdataset shards (`.tar`); one shard.
        side: Pictures are stored as squares of this side: resized to it by the shorter side, then cut at the centre.
        smallest: A picture with a shorter side below this is left out as unusable: a crop would only enlarge it.
        limit: Take at most so many.
        max_unreadable_share: Stop when more than this share cannot be used.

    Raises:
        DataError: if there is nothing, or too much of it cannot be used; it names how many and the first.
    """
    spec = PreprocessSpec(size=side, resize_size=side, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))

    def read(found: _Found) -> tuple[_Found, NDArray[np.uint8] | str]:
        try:
            picture = decode_picture(found.data, min_side=side)
            if min(picture.size) < smallest:
                return found, f"is {picture.width}x{picture.height}, smaller than the crop of {smallest}"
            return found, np.asarray(fit(picture, spec), dtype=np.uint8)
        except InvalidImage as error:
            return found, str(error)

    pixels, names, labels, digests = [], [], [], []
    unreadable: dict[str, str] = {}
    with ThreadPoolExecutor(allowed_cpus()) as pool:
        for found, result in pool.map(read, _walk(path, limit)):
            if isinstance(result, str):
                unreadable[found.name] = result
                continue
            pixels.append(result)
            names.append(found.name)
            labels.append(found.label)
            digests.append(hashlib.sha256(found.data).hexdigest())
    count = len(names) + len(unreadable)
    if not names or len(unreadable) > max_unreadable_share * count:
        if not count:
            raise DataError(f"there are no pictures in {path}")
        first, reason = next(iter(unreadable.items()))
        raise DataError(f"{len(unreadable)} of {count} pictures cannot be used; the first is {first}: {reason}")
    classes = tuple(sorted({label for label in labels if label is not None}))
    position = {name: i for i, name in enumerate(classes)}
    return PictureSet(
        np.stack(pixels),
        np.array([UNLABELLED if label is None else position[label] for label in labels], dtype=np.int64),
        classes,
        tuple(names),
        tuple(digests),
        unreadable,
    )


def _walk(path: Path, limit: int | None) -> Iterator[_Found]:
    for number, found in enumerate(_all(path)):
        if limit is not None and number >= limit:
            return
        yield found


def _all(path: Path) -> Iterator[_Found]:
    if path.suffix == ".tar" and path.is_file():
        yield from _shard(path)
        return
    if not path.is_dir():
        raise DataError(f"no pictures at {path}: name a folder or a .tar shard")
    shards = sorted(path.glob("*.tar"))
    if shards:
        for shard in shards:
            yield from _shard(shard)
        return
    for file in sorted(p for p in path.rglob("*") if p.suffix.lower() in _PICTURES and p.is_file()):
        relative = file.relative_to(path)
        yield _Found(str(relative), file.read_bytes(), relative.parts[0] if len(relative.parts) > 1 else None)


def _shard(path: Path) -> Iterator[_Found]:
    with tarfile.open(path) as tar:
        members = {member.name: member for member in tar if member.isfile()}
        for name, member in members.items():
            key, _, kind = name.rpartition(".")
            if f".{kind.lower()}" not in _PICTURES:
                continue
            file = tar.extractfile(member)
            label_member = members.get(f"{key}.cls")
            label_file = None if label_member is None else tar.extractfile(label_member)
            label = None if label_file is None else label_file.read().decode().strip()
            if file is not None:
                yield _Found(f"{path.name}/{name}", file.read(), label)
