"""The files `twinlens embed` writes: NumPy archives and Parquet tables, each appearing whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.embed_stream import Embedded
from twinlens.encoders.manifest import Manifest

SUFFIXES: Final = (".npz", ".parquet")


def check_writable(path: Path) -> None:
    """Tries whether a file can be made where `path` will be, before hours of work go into it.

    Raises:
        OSError: if it cannot.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sibling = _sibling(path)
    sibling.touch()
    sibling.unlink()


def write_vectors(path: Path, results: Sequence[Embedded], manifest: Manifest) -> None:
    """Writes the outcome of `embed_stream` by the suffix of `path`.

    `.npz` (loads with `allow_pickle=False`): `ids`, `vectors` float32 (n, d), `truncated` bool (n,), `error_ids`,
    `error_reasons`, `space_id`, `model`.
    `.parquet`: columns `id`, `vector` (list of float32), `truncated`, both null for a failure, and `error` (null for a
    success), in the order given; the schema's metadata names model and space.
    `truncated` marks texts that were longer than the model's context: the vector stands for their beginning.

    Raises:
        ValueError: if the suffix is neither.
        OSError: if the file cannot be written.
    """
    match path.suffix.lower():
        case ".npz":
            _write_whole(path, lambda stream: _npz(stream, results, manifest))
        case ".parquet":
            _write_whole(path, lambda stream: _parquet(stream, results, manifest))
        case other:
            msg = f"{other or 'no suffix'} is not one of {', '.join(SUFFIXES)}"
            raise ValueError(msg)


def _npz(stream: BinaryIO, results: Sequence[Embedded], manifest: Manifest) -> None:
    good = [result for result in results if result.vector is not None]
    bad = [result for result in results if result.vector is None]
    np.savez(
        stream,
        ids=_strings([result.id for result in good]),
        vectors=_matrix(good, manifest.dimension),
        truncated=np.array([result.truncated for result in good], dtype=np.bool_),
        error_ids=_strings([result.id for result in bad]),
        error_reasons=_strings([result.reason for result in bad]),
        space_id=np.array(manifest.space_id),
        model=np.array(f"{manifest.name}/{manifest.version}"),
    )


def _parquet(stream: BinaryIO, results: Sequence[Embedded], manifest: Manifest) -> None:
    import pyarrow as pa  # noqa: PLC0415 - 100 ms that .npz does not need
    import pyarrow.parquet as pq  # noqa: PLC0415

    # Not of a fixed size: Arrow before version 26 cannot read such a column back once it holds a null.
    vectors = pa.array([result.vector for result in results], type=pa.list_(pa.float32()))
    table = pa.table(
        {
            "id": pa.array([result.id for result in results], type=pa.string()),
            "vector": vectors,
            "truncated": pa.array(
                [None if result.vector is None else result.truncated for result in results], pa.bool_()
            ),
            "error": pa.array([result.reason if result.vector is None else None for result in results], pa.string()),
        }
    )
    names = {"twinlens.space_id": manifest.space_id, "twinlens.model": f"{manifest.name}/{manifest.version}"}
    pq.write_table(table.replace_schema_metadata(names), stream)


def _matrix(results: Sequence[Embedded], dimension: int) -> NDArray[np.float32]:
    rows = [result.vector for result in results if result.vector is not None]
    return np.stack(rows) if rows else np.zeros((0, dimension), dtype=np.float32)


def _strings(values: Sequence[str]) -> NDArray[np.str_]:
    # An empty list would become float64.
    return np.array(values, dtype=np.str_)


def _write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sibling = _sibling(path)
    try:
        with sibling.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        sibling.replace(path)
    finally:
        sibling.unlink(missing_ok=True)


def _sibling(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(6)}.tmp"
