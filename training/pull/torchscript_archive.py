"""The tensors in a TorchScript archive, read without running any of it.

`torch.jit.load` compiles and may run the code in the archive, and `torch.load` refuses such files with
`weights_only=True`. The weights themselves lie in the archive as in any torch file: a pickle (`data.pkl`) that builds
the module tree, and one file of raw numbers for each storage. This reads that pickle with an interpreter that knows
tensors and inert stand-ins for modules, and nothing else; the code beside it is never looked at. A file made to fill
memory is refused as well: nothing in it may be compressed, and no name may be longer than any model's.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

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
# Letters of all names together; the largest models have one million. Modules that lead into each other have more.
_MOST_LETTERS = 64_000_000


def is_torchscript(path: Path) -> bool:
    """Whether the file is a TorchScript archive (a zip with code and constants beside the weights)."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except Exception:  # no archive, or a damaged one, of which zipfile raises what comes
        return False


def read_torchscript(path: Path) -> dict[str, Tensor]:
    """The archive's parameters and buffers by name, on the CPU.

    Raises:
        ExportError: if the archive is damaged, or its pickle asks for anything but tensors and modules.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            pickled = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            return _by_name(_TensorsOnly(archive, pickled.removesuffix("data.pkl")).load())
    except StopIteration:
        raise ExportError(f"{path} is a TorchScript archive without weights") from None
    except Exception as error:  # damaged, it may raise anything
        raise ExportError(f"{path} is not a TorchScript archive of plain tensors: {first_line(error)}") from error


class _Module:
    """Stands for any class of the archive; only its attributes are kept."""

    attributes: Mapping[str, Any] = MappingProxyType({})


class _Storage:
    """Names a dtype, as torch's storage classes do in pickles."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


# The one written in Python: the one in C takes as much memory as ten bytes ask for, by the number of an object to
# remember, and cannot be told what may be given attributes.
_Unpickler = pickle._Unpickler  # noqa: SLF001


class _TensorsOnly(_Unpickler):
    stack: list[Any]

    def __init__(self, archive: zipfile.ZipFile, prefix: str) -> None:
        self._archive = archive
        self._prefix = prefix
        self._read: dict[str, Tensor] = {}
        super().__init__(io.BytesIO(self._bytes("data.pkl")))

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
            raw = bytearray(self._bytes(f"data/{key}"))
            flat = torch.frombuffer(raw, dtype=storage.dtype) if raw else torch.empty(0, dtype=storage.dtype)
            if flat.numel() < count:
                raise pickle.UnpicklingError(f"storage {key} is cut short")
            self._read[key] = flat
        return self._read[key]

    def _bytes(self, name: str) -> bytes:
        entry = self._archive.getinfo(f"{self._prefix}{name}")
        if entry.compress_type != zipfile.ZIP_STORED:  # torch compresses nothing; a few bytes could become terabytes
            raise pickle.UnpicklingError(f"{name} is compressed")
        return self._archive.read(entry)

    def _build(self) -> None:
        """Gives a module its attributes; of anything else, functions and classes too, pickle would set some."""
        state = self.stack.pop()
        module = self.stack[-1]
        if not isinstance(module, _Module) or not isinstance(state, dict):
            raise pickle.UnpicklingError(f"it gives attributes to {type(module).__name__}")
        module.attributes = state

    dispatch: ClassVar[dict[int, Any]] = {**_Unpickler.dispatch, pickle.BUILD[0]: _build}


def _rebuild(storage: Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Tensor:
    return torch.as_strided(storage, size, stride, offset)


def _first(value: Any, *_: Any) -> Any:
    return value


def _by_name(root: object) -> dict[str, Tensor]:
    """The tensors by the attributes that lead to them; what is shared has several names."""
    found: dict[str, Tensor] = {}
    letters = 0
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        prefix, module = waiting.pop()
        for name, value in module.attributes.items() if isinstance(module, _Module) else ():
            full = f"{prefix}{name}"
            letters += len(full) + 1
            if letters > _MOST_LETTERS:
                raise pickle.UnpicklingError("its modules lead into each other without an end")
            if isinstance(value, Tensor):
                found[full] = value
            else:
                waiting.append((f"{full}.", value))
    return found
