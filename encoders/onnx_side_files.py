"""Which files an ONNX graph reads its weights from, told by the graph itself and without the `onnx` package.

A graph may keep tensors in files beside it (`TensorProto.external_data`, see onnx/onnx docs/ExternalData.md); beyond
2 GB it has to. Those names decide what the graph computes, so nobody is asked for them: they are read from its
protobuf. Only the messages that can hold a tensor are walked; the bytes of tensors are skipped, never read.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from twinlens.encoders.errors import BundleError

# Field numbers of onnx.proto3: message -> field -> the message it holds.
_HOLDS: Final[dict[str, dict[int, str]]] = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Function": {7: "Node", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "Attribute": {
        5: "Tensor",
        6: "Graph",
        10: "Tensor",
        11: "Graph",
        22: "SparseTensor",
        23: "SparseTensor",
    },
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Tensor": {13: "Entry"},
}
_GRAPH_FIELD: Final = 7
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# As deep as protobuf itself reads.
_DEPTH: Final = 100
_LONGEST_VARINT: Final = 10


def side_files(graph: Path) -> tuple[str, ...]:
    """The files that `graph` reads beside itself, sorted, relative to its folder, with forward slashes.

    A name counts even where the tensor does not say that it lies outside: readers differ in whether they follow it.

    Args:
        graph: An `.onnx` file.

    Raises:
        BundleError: if the file is no ONNX graph, or names a file that is not below its own folder.
    """
    try:
        with graph.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            names = {_inside(name, graph) for name in _locations(content)}
    except OSError as error:
        msg = f"{graph.name} cannot be read: {error.strerror or error}"
        raise BundleError(msg) from error
    except (ValueError, IndexError) as error:  # an empty file cannot be mapped: ValueError
        msg = f"{graph.name} is not an ONNX graph: {error}"
        raise BundleError(msg) from error
    return tuple(sorted(names))


def _locations(content: mmap.mmap) -> Iterator[str]:
    """Every value of an external_data entry whose key is `location`."""
    # (message, where it starts, where it ends, how deep it lies)
    waiting: list[tuple[str, int, int, int]] = [("Model", 0, len(content), 0)]
    graphs = 0
    while waiting:
        message, start, end, depth = waiting.pop()
        if depth > _DEPTH:
            raise ValueError("it is nested too deeply")
        if message == "Entry":
            key, value = _entry(content, start, end)
            if key == b"location":
                yield value.decode()
            continue
        holds = _HOLDS[message]
        for field, wire, first, last in _fields(content, start, end):
            if wire == _BYTES and field in holds:
                graphs += message == "Model" and field == _GRAPH_FIELD
                waiting.append((holds[field], first, last, depth + 1))
    if not graphs:
        raise ValueError("it holds no graph")


def _entry(content: mmap.mmap, start: int, end: int) -> tuple[bytes, bytes]:
    """A StringStringEntryProto; of a field given twice the last counts, as in protobuf."""
    found = {1: b"", 2: b""}
    for field, wire, first, last in _fields(content, start, end):
        if wire == _BYTES and field in found:
            found[field] = content[first:last]
    return found[1], found[2]


def _fields(content: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of the message in content[start:end]: number, wire type, where the value starts and ends."""
    at = start
    while at < end:
        tag, at = _varint(content, at, end)
        field, wire = tag >> 3, tag & 7
        if not field:
            raise ValueError("a field has number 0")
        first = at
        if wire == _VARINT:
            _, at = _varint(content, at, end)
        elif wire == _FIXED64:
            at += 8
        elif wire == _FIXED32:
            at += 4
        elif wire == _BYTES:
            length, first = _varint(content, at, end)
            at = first + length
        else:
            msg = f"a field has wire type {wire}"
            raise ValueError(msg)
        if at > end:
            raise ValueError("a field is cut short")
        yield field, wire, first, at


def _varint(content: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = 0
    for i in range(_LONGEST_VARINT):
        if at + i >= end:
            raise ValueError("a number is cut short")
        byte = content[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    raise ValueError("a number is too long")


def _inside(name: str, graph: Path) -> str:
    """The name without `.` parts; refuses what leaves the graph's folder, also where it would come back.

    A star too: older releases of onnxruntime read memory, not a file, where a graph names `*/_ORT_MEM_ADDR_/*`.
    """
    if not name or name.startswith("/") or any(c in name for c in "\\\0:*") or ".." in name.split("/"):
        msg = f"{graph.name} reads weights from {name!r}, which is not a file below its folder"
        raise BundleError(msg)
    return PurePosixPath(name).as_posix()
