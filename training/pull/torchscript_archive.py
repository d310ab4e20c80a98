"""The tensors in a TorchScript archive, read without running any of it.

`torch.jit.load` compiles and may run the code in the archive, and `torch.load` refuses such files with
`weights_only=True`. The weights themselves lie in the archive as in any torch file: a pickle (`data.pkl`) that builds
the module tree, and one file of raw numbers for each storage. This reads that pickle with an interpreter that knows
tensors and inert stand-ins for modules, and nothing else; the code beside it is never looked at.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from twinlens.training.errors import first_line
from twinlens.training.export.errors import ExportError

_STORAGES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}


def is_torchscript(path: Path) -> bool:
    """Whether the file is a TorchScript archive (a zip with code and constants beside the weights)."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def read_torchscript(path: Path) -> dict[str, Tensor]:
    """The archive's parameters and buffers by name, on the CPU.

    Raises:
        ExportError: if the archive is damaged, or its pickle asks for anything but tensors and modules.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            pickled = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            root = _TensorsOnly(archive, pickled.removesuffix("data.pkl")).load()
    except StopIteration:
        raise ExportError(f"{path} is a TorchScript archive without weights") from None
    except (pickle.UnpicklingError, zipfile.BadZipFile, KeyError, EOFError, RuntimeError, ValueError) as error:
        raise ExportError(f"{path} is not a TorchScript archive of plain tensors: {first_line(error)}") from error
    tensors: dict[str, Tensor] = {}
    _collect(root, "", tensors)
    return tensors


class _Module:
    """Stands for any class of the archive; only its attributes are kept."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.attributes = state


class _Storage:
    """Names a dtype, as torch's storage classes do in pickles."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


class _TensorsOnly(pickle.Unpickler):
    def __init__(self, archive: zipfile.ZipFile, prefix: str) -> None:
        super().__init__(io.BytesIO(archive.read(f"{prefix}data.pkl")))
        self._archive = archive
        self._prefix = prefix
        self._read: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("__torch__"):
            return _Module
        if module == "torch" and name in _STORAGES:
            return _Storage(_STORAGES[name])
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch.jit._pickle":  # typed lists of numbers, tensors and booleans
            return _first
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> Tensor:
        kind, storage, key, _device, count = pid
        if kind != "storage" or not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("it names no storage where one is expected")
        if key not in self._read:
            raw = bytearray(self._archive.read(f"{self._prefix}data/{key}"))
            flat = torch.frombuffer(raw, dtype=storage.dtype) if raw else torch.empty(0, dtype=storage.dtype)
            if flat.numel() < count:
                raise pickle.UnpicklingError(f"storage {key} is cut short")
            self._read[key] = flat
        return self._read[key]


def _rebuild(storage: Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Tensor:
    return torch.as_strided(storage, size, stride, offset)


def _first(value: Any, *_: Any) -> Any:
    return value


def _collect(module: Any, prefix: str, found: dict[str, Tensor]) -> None:
    if not isinstance(module, _Module):
        return
    for name, value in module.attributes.items():
        if isinstance(value, Tensor):
            found[f"{prefix}{name}"] = value
        else:
            _collect(value, f"{prefix}{name}.", found)
