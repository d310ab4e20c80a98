"""Reads torch files as data: nothing in them is executed."""

from __future__ import annotations

import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from twinlens.training.errors import first_line


class NotATorchFile(Exception):  # noqa: N818 - the caller says what it wanted
    """The file cannot be read; the message is why, in a few words."""


def read_torch_file(path: Path, *, mapped: bool = False) -> Any:
    """What `torch.save` wrote, on the CPU (`weights_only=True`), whole: torch itself does not look at the checksums.

    Args:
        path: The file.
        mapped: Leave tensors on disk until they are used.

    Raises:
        NotATorchFile: if it is damaged, compressed, missing, or holds more than tensors and plain values.
    """
    if is_compressed(path):
        raise NotATorchFile("it is compressed; write it with torch.save")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # remarks about foreign pickles, which are refused below
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        damaged = _first_damaged(path)
    except Exception as error:  # damaged, it may raise anything
        reason, _, _ = first_line(error).partition(". ")  # torch goes on with advice
        raise NotATorchFile(reason) from error
    if damaged is not None:
        raise NotATorchFile(f"it is damaged in {damaged}")
    return content


def is_compressed(path: Path) -> bool:
    """Whether the parts of an archive are larger than the file, and might fill the memory; torch compresses nothing."""
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size
    except Exception:  # damaged, zipfile raises what comes; torch will say what is wrong
        return False


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor holds numbers that a weight can be: not quantised, sparse, complex, or without numbers."""
    # Of complex numbers, a real weight would take the real part.
    return tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_complex() or tensor.is_meta)


def _first_damaged(path: Path) -> str | None:
    """The first part whose checksum is another; None where all are right, and in torch's old format without any."""
    if not zipfile.is_zipfile(path):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        return "its directory"
