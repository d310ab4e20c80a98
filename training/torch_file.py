"""Reads torch files as data: nothing in them is executed."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from twinlens.training.errors import first_line


class NotATorchFile(Exception):  # noqa: N818 - the caller says what it wanted
    """The file cannot be read; the message is why, in a few words."""


def read_torch_file(path: Path, *, mapped: bool = False) -> Any:
    """What `torch.save` wrote, on the CPU (`weights_only=True`).

    Args:
        path: The file.
        mapped: Leave tensors on disk until they are used.

    Raises:
        NotATorchFile: if it is damaged, missing, or holds more than tensors and plain values.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # remarks about foreign pickles, which are refused below
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        reason, _, _ = first_line(error).partition(". ")  # torch goes on with advice
        raise NotATorchFile(reason) from error
