from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.oracle import assert_exact
from twinlens.index.errors import CollectionError, DamagedSegment, InvalidArgument, InvalidVector, MergeStopped
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.segment import open_segment, write_segment
from twinlens.index.search_threads import SearchThreads
from twinlens.index.vectors import unit_vectors

THREADS = SearchThreads(1)
DIMENSION = 8


def some_vectors(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    keys = np.sort(rng.choice(10**12, n, replace=False)).astype(np.int64)
    return keys, unit_vectors(rng.standard_normal((n, DIMENSION)), DIMENSION)


def written(folder: Path, keys: np.ndarray, vectors: np.ndarray, kind: Kind = Kind.FLAT) -> Path:
    chunks = [(keys[start : start + 7], vectors[start : start + 7]) for start in range(0, len(keys), 7)]
    write_segment(folder, chunks, dimension=DIMENSION, kind=kind, threads=THREADS)
    return folder


def test_what_was_written_is_there_after_opening(tmp_path: Path) -> None:
    keys, vectors = some_vectors()
    main = open_segment(written(tmp_path / "s", keys, vectors), threads=THREADS)
    assert (main.kind, main.dimension) == (Kind.FLAT, DIMENSION)
    np.testing.assert_array_equal(main.keys, keys)
    np.testing.assert_array_equal(main.vectors(np.array([59, 0])), vectors[[59, 0]])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["keys.npy", "segment.json", "vectors.f32"]


def test_search_finds_what_brute_force_finds(tmp_path: Path) -> None:
    keys, vectors = some_vectors()
    main = open_segment(written(tmp_path / "s", keys, vectors), threads=THREADS)
    queries = some_vectors(5, seed=1)[1]
    shown = np.random.default_rng(2).random(60) < 0.5
    for mask in (None, shown, np.zeros(60, dtype=bool)):
        scores, found = main.search(queries, 20, shown=mask)
        for query, of_scores, of_keys in zip(queries, scores, found, strict=True):
            there = {int(k): v for i, (k, v) in enumerate(zip(keys, vectors, strict=True)) if mask is None or mask[i]}
            assert_exact(query, there, 20, list(zip(of_keys.tolist(), of_scores.tolist(), strict=True)))


def test_a_segment_may_be_empty(tmp_path: Path) -> None:
    main = open_segment(written(tmp_path / "s", *some_vectors(0)), threads=THREADS)
    scores, found = main.search(np.eye(DIMENSION, dtype=np.float32)[:2], 3)
    assert [len(each) for each in scores] == [len(each) for each in found] == [0, 0]


def test_stopping_leaves_nothing_whenever_it_comes(tmp_path: Path) -> None:
    keys, vectors = some_vectors()

    def write(looks: int) -> bool:
        """Stops at the look after so many; whether that was too late."""
        left = iter(range(looks))
        try:
            write_segment(
                tmp_path / "s",
                ((keys[i : i + 20], vectors[i : i + 20]) for i in range(0, 60, 20)),
                dimension=DIMENSION,
                kind=Kind.FLAT,
                threads=THREADS,
                stop=lambda: next(left, None) is None,
            )
        except MergeStopped:
            assert list(tmp_path.iterdir()) == []
            return False
        return True

    looks = next(looks for looks in itertools.count() if write(looks))
    assert looks == 5, "three chunks, and the sums of two files"


def test_an_error_of_the_source_leaves_nothing(tmp_path: Path) -> None:
    keys, vectors = some_vectors()

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield keys, vectors
        raise CollectionError("gone")

    with pytest.raises(CollectionError, match="gone"):
        write_segment(tmp_path / "s", chunks(), dimension=DIMENSION, kind=Kind.FLAT, threads=THREADS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [[1, 1], [2, 1], [-1]])
def test_keys_that_do_not_ascend_are_refused(tmp_path: Path, given: list[int]) -> None:
    keys = np.array(given, dtype=np.int64)
    with pytest.raises(ValueError, match="ascend"):
        written(tmp_path / "s", keys, some_vectors(len(keys))[1])


@pytest.mark.parametrize("name", ["keys.npy", "vectors.f32", "segment.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "empty", "longer"])
def test_damage_is_found_and_the_file_named(tmp_path: Path, name: str, damage: str) -> None:
    path = written(tmp_path / "s", *some_vectors()) / name
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "flip":
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)
    else:
        path.write_bytes({"cut": bytes(data[:-2]), "empty": b"", "longer": bytes(data) + b"\n{"}[damage])
    with pytest.raises(DamagedSegment, match=f"s/{name}"):
        open_segment(tmp_path / "s", threads=THREADS)


def test_a_missing_folder_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedSegment, match="nowhere"):
        open_segment(tmp_path / "nowhere", threads=THREADS)


def test_files_of_another_segment_are_found_out(tmp_path: Path) -> None:
    folder = written(tmp_path / "s", *some_vectors())
    other = written(tmp_path / "t", *some_vectors(seed=1))
    (folder / "vectors.f32").write_bytes((other / "vectors.f32").read_bytes())
    with pytest.raises(DamagedSegment, match=r"vectors\.f32"):
        open_segment(folder, threads=THREADS)


def test_values_that_are_not_finite_are_found_though_the_checksum_fits(tmp_path: Path) -> None:
    keys, vectors = some_vectors()
    vectors[40, 3] = np.nan
    folder = written(tmp_path / "s", keys, vectors)
    with pytest.raises(DamagedSegment, match=r"vectors.f32.*not finite"):
        open_segment(folder, threads=THREADS)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "auto"},
        {"kind": "hnws"},
        {"count": 59},
        {"dimension": 0},
        {"format": 99},
        {"files": {}},
        {"count": None},
    ],
)
@pytest.mark.parametrize("signed", [True, False])
def test_a_manifest_that_does_not_fit_is_damage(tmp_path: Path, change: dict[str, object], signed: bool) -> None:
    path = written(tmp_path / "s", *some_vectors()) / "segment.json"
    document = json.loads(path.read_text()) | change
    if signed:
        del document["checksum"]
        document["checksum"] = zlib.crc32(json.dumps(document, sort_keys=True).encode())
    path.write_text(json.dumps(document))
    with pytest.raises(DamagedSegment, match="segment.json|vectors.f32|keys.npy" if signed else "has changed"):
        open_segment(tmp_path / "s", threads=THREADS)


def test_an_open_segment_outlives_its_folder(tmp_path: Path) -> None:
    keys, vectors = some_vectors()
    folder = written(tmp_path / "s", keys, vectors)
    main = open_segment(folder, threads=THREADS)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert main.search(vectors[:1], 1)[1][0].tolist() == [keys[0]]


def test_wrong_requests_are_refused_naming_both_sides(tmp_path: Path) -> None:
    main = open_segment(written(tmp_path / "s", *some_vectors()), threads=THREADS)
    with pytest.raises(InvalidArgument, match="top_k is 0"):
        main.search(np.eye(DIMENSION, dtype=np.float32), 0)
    with pytest.raises(InvalidVector, match=r"\(1, 3\).*\(q, 8\)"):
        main.search(np.ones((1, 3), dtype=np.float32), 1)
    main.close()
    with pytest.raises(CollectionError, match="closed"):
        main.search(np.eye(DIMENSION, dtype=np.float32), 1)
