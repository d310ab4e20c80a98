"""Merged vectors in a folder of their own: written once, then only read.

keys.npy      int64, ascending
vectors.f32   row r belongs to key r: float32, little endian, C order, no header; mapped, not loaded
index.faiss   what finds candidates; none for `flat`
segment.json  kind, count, dimension, parameters, and the size and checksum of every other file
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from twinlens.index.durable import sync, sync_all
from twinlens.index.errors import DamagedSegment, MergeStopped
from twinlens.index.kinds.build import build_structure
from twinlens.index.kinds.device import Device
from twinlens.index.kinds.effort import kept_effort, measure_effort
from twinlens.index.kinds.faiss_structure import read_structure
from twinlens.index.kinds.gpu import on_device
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.main_index import MainIndex
from twinlens.index.kinds.mapped import map_vectors
from twinlens.index.kinds.merged import MergedVectors
from twinlens.index.kinds.segment_manifest import SegmentManifest, read_manifest, write_manifest
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.search_threads import SearchThreads

_KEYS = "keys.npy"
_VECTORS = "vectors.f32"
_STRUCTURE = "index.faiss"
_PIECE_BYTES = 1 << 22


def write_segment(
    folder: Path,
    chunks: Iterable[tuple[Keys, Vectors]],
    *,
    dimension: int,
    kind: Kind,
    threads: SearchThreads,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Writes a segment aside and gives it its name once all of it is on disk.

    Args:
        folder: What it will be called; there is nothing of that name. Its parent exists.
        chunks: Keys, shape (n,), ascending over all chunks, and their unit vectors, shape (n, d).
        dimension: The d.
        kind: Not `auto`. Where there are too few vectors for it, the segment becomes a `flat` one.
        threads: Where the threads that build it come from.
        stop: Asked often; True ends it.

    Raises:
        MergeStopped: `stop` said so. Nothing is left behind, as after every error.
        ValueError: keys that do not ascend, or another dimension.
        OSError: the disk is full or read-only.
    """
    if kind is Kind.AUTO:
        raise ValueError("a segment is of a kind that was chosen")

    def look_up() -> None:
        if stop():
            raise MergeStopped("merging was stopped")

    aside = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir()
        keys = _write_vectors(aside / _VECTORS, chunks, dimension, look_up)
        _write_keys(aside / _KEYS, keys)
        names = [_KEYS, _VECTORS]
        matrix = map_vectors(aside / _VECTORS, len(keys), dimension)
        structure = build_structure(kind, matrix, threads, stop)
        parameters: dict[str, int] = {}
        if structure is not None:
            names.append(_STRUCTURE)
            structure.save(aside / _STRUCTURE)
            with threads.beside():
                parameters = structure.parameters | measure_effort(structure, matrix, stop).parameters()
        write_manifest(
            aside,
            SegmentManifest(
                name=folder.name,
                kind=Kind.FLAT if structure is None else structure.kind,
                count=len(keys),
                dimension=dimension,
                parameters=parameters,
                files={name: _size_and_checksum(aside / name, look_up) for name in names},
            ),
        )
        sync_all([*(aside / name for name in names), aside])
        aside.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_segment(folder: Path, look_up: Callable[[], None] = lambda: None) -> SegmentManifest:
    """Reads every byte of a segment and says what it is.

    Args:
        folder: Where it lies.
        look_up: Called often; what it raises ends it.

    Raises:
        DamagedSegment: a file is missing or is not what was written; it is named.
    """
    manifest = read_manifest(folder)
    for name, (size, checksum) in manifest.files.items():
        try:
            found = _size_and_checksum(folder / name, look_up)
        except OSError as error:
            raise DamagedSegment(f"{folder.name}/{name}: {(error.strerror or 'unreadable').lower()}") from error
        if found[0] != size:
            raise DamagedSegment(f"{folder.name}/{name}: {found[0]} bytes instead of {size}")
        if found[1] != checksum:
            raise DamagedSegment(f"{folder.name}/{name}: its content has changed")
    wanted = {_KEYS, _VECTORS} if manifest.kind is Kind.FLAT else {_KEYS, _VECTORS, _STRUCTURE}
    if manifest.files.keys() != wanted:
        raise DamagedSegment(f"{folder.name}: it lists {', '.join(manifest.files)} instead of {', '.join(wanted)}")
    return manifest


def open_segment(folder: Path, *, threads: SearchThreads, device: Device = Device.CPU) -> MainIndex:
    """Opens a segment after reading every byte of it once. Vectors stay on disk, mapped.

    Args:
        folder: Where it lies.
        threads: Where the threads of searches come from.
        device: What searches it.

    Raises:
        EngineUnavailable: `device` is `cuda`, and there is no GPU or it failed.
        DamagedSegment: a file is missing or is not what was written; it is named.
    """
    manifest = check_segment(folder)
    keys = _load_keys(folder, manifest)
    matrix = _map(folder, manifest)
    if manifest.kind is Kind.FLAT:
        there = on_device(device, manifest.kind, matrix, None)
        return MergedVectors(keys, matrix, threads=threads, structure=there)
    try:
        structure = read_structure(folder / _STRUCTURE, manifest.kind, dict(manifest.parameters))
        effort = kept_effort(manifest.parameters)
    except (RuntimeError, KeyError) as error:
        raise DamagedSegment(f"{folder.name}/{_STRUCTURE}: not what its parameters say") from error
    if structure.count != manifest.count or structure.dimension != manifest.dimension:
        raise DamagedSegment(f"{folder.name}/{_STRUCTURE}: of other vectors")
    here = structure, effort
    there = on_device(device, manifest.kind, matrix, here)
    return MergedVectors(
        keys,
        matrix,
        threads=threads,
        structure=there,
        structure_bytes=manifest.files[_STRUCTURE][0] if there == here else 0,
    )


def _write_vectors(
    path: Path, chunks: Iterable[tuple[Keys, Vectors]], dimension: int, look_up: Callable[[], None]
) -> Keys:
    """Writes the vectors and returns their keys."""
    parts: list[Keys] = []
    last = -1
    with path.open("wb") as file:
        for keys, vectors in chunks:
            look_up()
            if vectors.shape != (len(keys), dimension):
                raise ValueError(f"vectors of shape {vectors.shape} where ({len(keys)}, {dimension}) is wanted")
            if len(keys) == 0:
                continue
            if keys[0] <= last or (np.diff(keys) <= 0).any():
                raise ValueError("keys do not ascend")
            last = int(keys[-1])
            parts.append(keys.astype("<i8"))
            file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
    return np.concatenate(parts) if parts else np.empty(0, dtype="<i8")


def _write_keys(path: Path, keys: Keys) -> None:
    with path.open("wb") as file:  # `np.save` would not say what is wrong with the disk
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(keys))
        file.write(keys.data)


def _load_keys(folder: Path, manifest: SegmentManifest) -> Keys:
    try:
        keys: Any = np.load(folder / _KEYS, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DamagedSegment(f"{folder.name}/{_KEYS}: not an array") from error
    if keys.dtype != np.int64 or keys.shape != (manifest.count,) or (np.diff(keys) <= 0).any():
        raise DamagedSegment(f"{folder.name}/{_KEYS}: not {manifest.count} ascending keys")
    return np.asarray(keys, dtype=np.int64)


def _map(folder: Path, manifest: SegmentManifest) -> Vectors:
    path = folder / _VECTORS
    size = path.stat().st_size
    if size != manifest.count * manifest.dimension * 4:
        raise DamagedSegment(
            f"{folder.name}/{_VECTORS}: {size} bytes are not {manifest.count} vectors of dimension {manifest.dimension}"
        )
    matrix = map_vectors(path, manifest.count, manifest.dimension)
    rows = max(1, _PIECE_BYTES // (4 * manifest.dimension))
    for start in range(0, manifest.count, rows):
        # A sum is not finite where a value is not, and takes a fraction of the time that asking every value does.
        if not np.isfinite(matrix[start : start + rows].sum()):
            raise DamagedSegment(f"{folder.name}/{_VECTORS}: values that are not finite from row {start} on")
    return matrix


def _size_and_checksum(path: Path, look_up: Callable[[], None]) -> tuple[int, int]:
    size, checksum = 0, 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            look_up()
            size += len(piece)
            checksum = zlib.crc32(piece, checksum)
    return size, checksum
