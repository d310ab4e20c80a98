"""Queries that lie midway between clusters: a graph leads to one of these and seldom on to the others."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from twinlens.index.kinds.build import build_structure
from twinlens.index.kinds.effort import Effort, Far, Level, kept_effort
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.main_index import MainIndex
from twinlens.index.kinds.merged import MergedVectors
from twinlens.index.kinds.segment import open_segment, write_segment
from twinlens.index.kinds.segment_manifest import read_manifest
from twinlens.index.search_threads import SearchThreads
from twinlens.index.vectors import unit_vectors

THREADS = SearchThreads(1)
DIMENSION, COUNT = 64, 16_000
KINDS = [Kind.HNSW, Kind.IVF_FLAT, Kind.IVF_PQ]


@cache
def vectors() -> np.ndarray:
    """Around 32 centres."""
    rng = np.random.default_rng(0)
    scale = np.arange(1, DIMENSION + 1) ** -0.5
    points = rng.standard_normal((32, DIMENSION))[rng.integers(32, size=COUNT + 200)]
    return unit_vectors((points + 0.5 * rng.standard_normal(points.shape)) * scale, DIMENSION)


def stored() -> np.ndarray:
    return vectors()[:COUNT]


def near() -> np.ndarray:
    return vectors()[COUNT:]


def midway() -> np.ndarray:
    """Between random pairs of stored vectors."""
    one, other = np.random.default_rng(5).integers(COUNT, size=(2, 300))
    return unit_vectors(stored()[one] + stored()[other], DIMENSION)


@pytest.fixture(scope="module", params=KINDS)
def main(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MainIndex:
    folder = tmp_path_factory.mktemp("segments") / "s"
    write_segment(folder, [(np.arange(COUNT), stored())], dimension=DIMENSION, kind=request.param, threads=THREADS)
    return open_segment(folder, threads=THREADS)


def recall(main: MainIndex, queries: np.ndarray, top_k: int, *, alone: bool, shown: np.ndarray | None = None) -> float:
    groups = [queries[i : i + 1] for i in range(len(queries))] if alone else [queries]
    found = np.concatenate([main.search(group, top_k, shown=shown)[1] for group in groups])
    scores = queries @ stored().T
    if shown is not None:
        scores[:, ~shown] = -np.inf
    brute = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    return float(np.mean([np.isin(keys, best).mean() for keys, best in zip(found, brute, strict=True)]))


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("top_k", [1, 10, 100])
def test_most_of_what_is_nearest_to_a_point_midway_between_clusters_is_found(
    main: MainIndex, top_k: int, alone: bool
) -> None:
    assert recall(main, midway(), top_k, alone=alone) >= 0.9


@pytest.mark.parametrize("share", [0.5, 0.05])
def test_a_filter_loses_nothing_midway(main: MainIndex, share: float) -> None:
    shown = np.random.default_rng(1).random(COUNT) < share
    assert recall(main, midway(), 10, alone=False, shown=shown) >= 0.95


def test_few_queries_near_stored_vectors_are_taken_for_far_ones(tmp_path: Path) -> None:
    write_segment(tmp_path / "s", [(np.arange(COUNT), stored())], dimension=DIMENSION, kind=Kind.HNSW, threads=THREADS)
    far = kept_effort(read_manifest(tmp_path / "s").parameters).far
    assert far is not None

    def share(queries: np.ndarray) -> float:
        rows = np.argsort(-(queries @ stored().T), axis=1)[:, :16]
        is_far = far.among(stored(), queries, rows)
        assert [far.alone(stored(), queries[i : i + 1], rows[i : i + 1]) for i in range(20)] == is_far[:20].tolist()
        return float(is_far.mean())

    assert share(near()) <= 0.04
    assert share(midway()) >= 0.3


def test_what_was_proposed_of_less_than_ten_tells_nothing() -> None:
    far = Far(below_e6=2_000_000, efforts=(1, 1, 1))
    rows = np.arange(16).reshape(1, 16)
    assert far.among(stored(), near()[:1], rows).tolist() == [True]
    rows[0, 9:] = -1
    assert far.among(stored(), near()[:1], rows).tolist() == [False]
    assert not far.alone(stored(), near()[:1], rows)
    assert far.among(stored(), near()[:1], rows[:, :5]).tolist() == [False]


def test_where_looking_closer_is_no_less_work_than_comparing_with_all_nothing_is_missed() -> None:
    few = stored()[:2000]
    structure = build_structure(Kind.HNSW, few, THREADS, lambda: False)
    assert structure is not None
    level = Level((16, 106, 1006), (16, 106, 1006))
    effort = Effort(level, level, Far(2_000_000, (2048, 2048, 2048)))
    main = MergedVectors(np.arange(2000), few, threads=THREADS, structure=(structure, effort))
    brute = np.argsort(-(midway() @ few.T), axis=1, kind="stable")[:, :10]
    for given in (midway(), midway()[:1]):
        assert np.sort(main.search(given, 10)[1]).tolist() == np.sort(brute[: len(given)]).tolist()


def test_segments_of_before_are_read_and_treat_all_queries_alike() -> None:
    level = Level((16, 106, 1006), (48, 128, 1028))
    assert kept_effort(Effort(level, level).parameters()).far is None
    effort = Effort(level, level, Far(-3, (1, 2, 3)))
    assert kept_effort(effort.parameters()) == effort
    assert effort.far is not None
    assert [effort.far.at(wanted) for wanted in (1, 10, 100, 2000)] == [1, 1, 2, 6]
