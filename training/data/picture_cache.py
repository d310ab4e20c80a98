"""Pictures decoded once, through the contract of serving, into one uint8 array."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.cpus import allowed_cpus
from twinlens.encoders.decode import decode_picture
from twinlens.encoders.errors import InvalidImage
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.preprocess import fit
from twinlens.training.data.bounded_map import bounded_map
from twinlens.training.data.errors import DataError

# Above this many bytes the array lives in a file and the operating system pages it.
IN_MEMORY_BYTES = 2 << 30

Item = TypeVar("Item")


@dataclass(frozen=True)
class Decoded:
    """What became of a sequence of pictures.

    Attributes:
        pixels_nhwc: uint8, shape (m, size, size, 3): those that can be used, in order.
        rows: Their positions in the sequence.
        digests: SHA-256 of their bytes.
        unreadable: Positions of the others, in order, and what is wrong with them.
    """

    pixels_nhwc: NDArray[np.uint8]
    rows: tuple[int, ...]
    digests: tuple[str, ...]
    unreadable: dict[int, str]


def decode_each(
    items: Sequence[Item],
    read: Callable[[Item], bytes],
    spec: PreprocessSpec,
    *,
    smallest: int = 1,
    spill: Path | None = None,
) -> Decoded:
    """Decodes every picture in threads, few of them in flight.

    Args:
        items: The pictures.
        read: Gives the bytes of one.
        spec: The preprocessing; everything but normalisation happens here.
        smallest: See `read_picture`.
        spill: See `allocate_pixels`.

    Raises:
        DataError: if `spill` has no room.
    """
    pixels = allocate_pixels((len(items), spec.size, spec.size, 3), spill)
    rows: list[int] = []
    digests: list[str] = []
    unreadable: dict[int, str] = {}

    def decode(item: Item) -> tuple[NDArray[np.uint8], str] | str:
        return read_picture(lambda: read(item), spec, smallest=smallest)

    # Pillow decodes and resizes without holding the GIL.
    for row, (_, result) in enumerate(bounded_map(decode, items, threads=allowed_cpus())):
        if isinstance(result, str):
            unreadable[row] = result
            continue
        pixels[len(rows)], digest = result
        rows.append(row)
        digests.append(digest)
    return Decoded(pixels[: len(rows)], tuple(rows), tuple(digests), unreadable)


def allocate_pixels(shape: tuple[int, ...], spill: Path | None) -> NDArray[np.uint8]:
    """An array for decoded pictures: in memory, or where it is large in a file of the folder `spill`.

    Raises:
        DataError: if the folder has no room.
    """
    if spill is None or int(np.prod(shape)) <= IN_MEMORY_BYTES:
        return np.empty(shape, dtype=np.uint8)
    try:
        # A file without a name: it goes when the array goes, also after a crash.
        with tempfile.TemporaryFile(dir=spill) as file:
            if hasattr(os, "posix_fallocate"):
                # Claimed now: writing to a page for which the disk has no room ends the process with a signal.
                os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)))
            return np.memmap(file, dtype=np.uint8, mode="w+", shape=shape)
    except OSError as error:
        size_gib = int(np.prod(shape)) / 2**30
        raise DataError(
            f"{spill} has no room for the decoded pictures ({size_gib:.3g} GiB): {error.strerror or error}"
        ) from error


def read_picture(
    read: Callable[[], bytes], spec: PreprocessSpec, *, smallest: int = 1
) -> tuple[NDArray[np.uint8], str] | str:
    """One picture through the contract of serving.

    Args:
        read: Gives the file's bytes.
        spec: The preprocessing; everything but normalisation happens here.
        smallest: A shorter side below this makes a picture unusable.

    Returns:
        Its pixels, uint8 of shape (size, size, 3), and the SHA-256 of its bytes; or what is wrong with it.
    """
    try:
        data = read()
    except OSError as error:
        return error.strerror or "cannot be opened"
    except ValueError:  # a NUL or half a surrogate pair
        return "no file can have this name"
    try:
        picture = decode_picture(data, min_side=spec.resize_size)
        if min(picture.size) < smallest:
            return (
                f"is {picture.width}x{picture.height}, smaller than the crop of {smallest} "
                "(train on smaller crops with augment.size)"
            )
        fitted = fit(picture, spec)
    except InvalidImage as error:
        return str(error)
    return np.asarray(fitted, dtype=np.uint8), hashlib.sha256(data).hexdigest()
