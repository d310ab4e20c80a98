"""Every kind over enough vectors that its structure is used; what is right is told by brute force."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.support.oracle import TOLERANCE
from twinlens.index.errors import DamagedSegment, MergeStopped
from twinlens.index.kinds import auto
from twinlens.index.kinds.auto import choose_kind, estimate
from twinlens.index.kinds.build import build_structure
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.main_index import MainIndex
from twinlens.index.kinds.segment import open_segment, write_segment
from twinlens.index.search_threads import SearchThreads
from twinlens.index.vectors import unit_vectors

THREADS = SearchThreads(1)
DIMENSION, COUNT = 32, 12_000
KINDS = [kind for kind in Kind if kind is not Kind.AUTO]
STRUCTURED = [kind for kind in KINDS if kind is not Kind.FLAT]


@cache
def clustered() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors around 40 centres, the centre of each, and queries of the same distribution."""
    rng = np.random.default_rng(0)
    scale = np.arange(1, DIMENSION + 1) ** -0.5
    centres = rng.standard_normal((40, DIMENSION))
    cluster = rng.integers(40, size=COUNT + 100)
    points = (centres[cluster] + 0.7 * rng.standard_normal((COUNT + 100, DIMENSION))) * scale
    units = unit_vectors(points, DIMENSION)
    return units[:COUNT], cluster[:COUNT], units[COUNT:]


def keys_of(rows: np.ndarray) -> np.ndarray:
    return 3 * rows + 5


def write(folder: Path, kind: Kind, vectors: np.ndarray) -> Path:
    rows = np.arange(len(vectors))
    chunks = [(keys_of(rows[start : start + 999]), vectors[start : start + 999]) for start in range(0, len(rows), 999)]
    write_segment(folder, chunks, dimension=vectors.shape[1], kind=kind, threads=THREADS)
    return folder


@pytest.fixture(scope="module", params=KINDS)
def main(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MainIndex]:
    folder = tmp_path_factory.mktemp("segments") / "s"
    opened = open_segment(write(folder, request.param, clustered()[0]), threads=THREADS)
    yield opened
    opened.close()


def recall(main: MainIndex, top_k: int, shown: np.ndarray | None = None, *, exact: bool = False) -> float:
    """recall@k against brute force; everything that must hold for any hit is checked on the way."""
    vectors, _, queries = clustered()
    rows = np.arange(COUNT) if shown is None else np.flatnonzero(shown)
    right = 0
    all_scores, all_keys = main.search(queries, top_k, shown=shown, exact=exact)
    for query, scores, keys in zip(queries, all_scores, all_keys, strict=True):
        of_rows = (keys - 5) // 3
        assert len(keys) == min(top_k, len(rows))
        assert len(np.unique(keys)) == len(keys)
        assert np.isin(of_rows, rows).all()
        assert (np.diff(scores) <= 0).all()
        np.testing.assert_allclose(scores, vectors[of_rows] @ query, atol=TOLERANCE)
        brute = rows[np.argsort(-(vectors[rows] @ query), kind="stable")[: len(keys)]]
        right += len(np.intersect1d(brute, of_rows))
    return right / (len(queries) * min(top_k, len(rows)))


def test_a_segment_is_of_the_kind_that_was_asked_for(main: MainIndex, request: pytest.FixtureRequest) -> None:
    assert main.kind is request.node.callspec.params["main"]
    assert len(main.keys) == COUNT


def test_most_of_the_nearest_are_found(main: MainIndex) -> None:
    least = 1 if main.kind is Kind.FLAT else 0.95
    assert recall(main, 1) >= least
    assert recall(main, 10) >= least
    assert recall(main, 100) >= least


def test_exact_search_misses_nothing(main: MainIndex) -> None:
    assert recall(main, 10, exact=True) == 1


@pytest.mark.parametrize("share", [0.999, 0.5, 0.05, 0.002])
def test_a_filter_loses_nothing(main: MainIndex, share: float) -> None:
    shown = np.random.default_rng(1).random(COUNT) < share
    assert recall(main, 10, shown) >= (0.95 if share > 0.9 else 0.99)


def test_a_filter_that_shows_nothing_finds_nothing(main: MainIndex) -> None:
    scores, keys = main.search(clustered()[2], 10, shown=np.zeros(COUNT, dtype=np.bool_))
    assert {len(each) for each in scores} == {len(each) for each in keys} == {0}


@pytest.mark.parametrize("only", [True, False])
def test_a_filter_that_goes_with_the_vectors_loses_nothing(main: MainIndex, only: bool) -> None:
    cluster = clustered()[1]
    assert recall(main, 10, (cluster == 3) if only else (cluster >= 20)) >= 0.99


def test_a_top_k_beyond_the_size_returns_all(main: MainIndex) -> None:
    vectors, _, queries = clustered()
    scores, keys = main.search(queries[:2], COUNT + 1)
    for query, of_scores, of_keys in zip(queries, scores, keys, strict=False):
        assert sorted(of_keys.tolist()) == main.keys.tolist()
        np.testing.assert_allclose(of_scores, np.sort(vectors @ query)[::-1], atol=TOLERANCE)


def test_a_query_finds_the_same_alone_and_in_company(main: MainIndex) -> None:
    queries = clustered()[2][:20]
    shown = np.random.default_rng(2).random(COUNT) < 0.5
    for mask in (None, shown):
        scores, keys = main.search(queries, 10, shown=mask)
        for i in range(len(queries)):
            alone_scores, alone_keys = main.search(queries[i : i + 1], 10, shown=mask)
            common, here, there = np.intersect1d(keys[i], alone_keys[0], return_indices=True)
            assert len(common) >= 9
            np.testing.assert_array_equal(scores[i][here], alone_scores[0][there])


def test_no_queries_give_no_results(main: MainIndex) -> None:
    scores, keys = main.search(np.empty((0, DIMENSION), dtype=np.float32), 3)
    assert scores.shape == keys.shape == (0, 3)


def test_its_memory_is_what_was_estimated(main: MainIndex) -> None:
    wanted = estimate(main.kind, COUNT, DIMENSION)
    assert wanted * 0.8 <= main.memory_bytes <= wanted * 1.3


@pytest.mark.parametrize("kind", STRUCTURED)
def test_vectors_that_are_all_alike_come_by_lower_key(tmp_path: Path, kind: Kind) -> None:
    vectors = np.repeat(clustered()[0][:1], 3000, axis=0)
    main = open_segment(write(tmp_path / "s", kind, vectors), threads=THREADS)
    for top_k in (1, 20, 2999):
        assert main.search(vectors[:1], top_k)[1][0].tolist() == keys_of(np.arange(top_k)).tolist()


def test_queries_of_another_modality_find_most_of_the_nearest(main: MainIndex) -> None:
    vectors, _, queries = clustered()
    apart = np.random.default_rng(4).standard_normal(DIMENSION)  # as texts lie apart from pictures
    shifted = unit_vectors(queries + 0.5 * apart / np.linalg.norm(apart), DIMENSION)
    right = 0
    for query, keys in zip(shifted, main.search(shifted, 10)[1], strict=True):
        right += len(np.intersect1d(keys_of(np.argsort(-(vectors @ query))[:10]), keys))
    assert right / (10 * len(shifted)) >= 0.95


@pytest.mark.parametrize("kind", STRUCTURED)
@pytest.mark.parametrize("dimension", [1, 7, 30])
def test_any_dimension_will_do(tmp_path: Path, kind: Kind, dimension: int) -> None:
    rng = np.random.default_rng(3)
    vectors = unit_vectors(rng.standard_normal((auto.LEAST_ROWS, dimension)), dimension)
    main = open_segment(write(tmp_path / "s", kind, vectors), threads=THREADS)
    assert main.kind is kind
    scores, _ = main.search(vectors[:50], 1)
    np.testing.assert_allclose(np.concatenate(scores), 1, atol=1e-6)


@pytest.mark.parametrize("kind", STRUCTURED)
def test_with_too_few_vectors_all_are_compared(tmp_path: Path, kind: Kind) -> None:
    for count in (0, 1, auto.LEAST_ROWS - 1):
        main = open_segment(write(tmp_path / str(count), kind, clustered()[0][:count]), threads=THREADS)
        assert main.kind is Kind.FLAT
        assert len(main.search(clustered()[2][:1], 5)[1][0]) == min(5, count)


@pytest.mark.parametrize("kind", STRUCTURED)
def test_building_can_be_stopped_at_any_time(tmp_path: Path, kind: Kind) -> None:
    vectors = clustered()[0][: auto.LEAST_ROWS]

    def write_asking(allowed: float) -> int:
        """Writes a segment, told to stop after so many questions, and returns how often it asked."""
        asked = 0

        def stop() -> bool:
            nonlocal asked
            asked += 1
            return asked > allowed

        chunks = [(np.arange(len(vectors)), vectors)]
        write_segment(tmp_path / "s", chunks, dimension=DIMENSION, kind=kind, threads=THREADS, stop=stop)
        return asked

    questions = write_asking(float("inf"))
    shutil.rmtree(tmp_path / "s")
    assert questions > 5
    for allowed in (0, 1, questions // 2, questions - 1):
        with pytest.raises(MergeStopped):
            write_asking(allowed)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", STRUCTURED)
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_structure_is_found_out(tmp_path: Path, kind: Kind, damage: str) -> None:
    path = write(tmp_path / "s", kind, clustered()[0][:2000]) / "index.faiss"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.unlink()
    if damage != "gone":
        path.write_bytes(bytes(data) if damage == "flip" else bytes(data[:-1]))
    with pytest.raises(DamagedSegment, match=r"s/index\.faiss"):
        open_segment(tmp_path / "s", threads=THREADS)


class TestAuto:
    def test_few_vectors_are_all_compared(self) -> None:
        assert choose_kind(Kind.AUTO, auto.FLAT_ROWS, 512) is Kind.FLAT
        assert choose_kind(Kind.AUTO, auto.FLAT_ROWS + 1, 512) is Kind.HNSW

    def test_the_fastest_that_fits_the_memory_is_chosen(self) -> None:
        needs = {kind: estimate(kind, 10**6, 512) for kind in STRUCTURED}
        assert needs[Kind.HNSW] > needs[Kind.IVF_FLAT] > needs[Kind.IVF_PQ]
        for kind, memory_bytes in needs.items():
            assert choose_kind(Kind.AUTO, 10**6, 512, memory_bytes) is kind
        assert choose_kind(Kind.AUTO, 10**6, 512, 1) is Kind.IVF_PQ

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_kind_that_was_asked_for_stays(self, kind: Kind) -> None:
        assert choose_kind(kind, 10**9, 512, 1) is kind

    def test_a_segment_of_no_kind_is_not_written(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="chosen"):
            write_segment(tmp_path / "s", [], dimension=2, kind=Kind.AUTO, threads=THREADS)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_as_what_it_is() -> None:
    structure = build_structure(Kind.HNSW, clustered()[0][:2000], THREADS, lambda: False)
    assert structure is not None
    with pytest.raises(OSError, match="No space left"):
        structure.save(Path("/dev/full"))
