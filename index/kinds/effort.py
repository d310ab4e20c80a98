"""How thoroughly to search so that enough of the nearest are found, measured when a structure is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import MergeStopped
from twinlens.index.faiss_library import import_faiss
from twinlens.index.kinds.exact import ROUNDING, Rows
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.sample import sample_rows
from twinlens.index.kinds.structure import Structure
from twinlens.index.protocol import Vectors

DEPTHS = (10, 100, 1000)
_QUERIES = (384, 64, 16)  # for each depth: the deeper, the more each tells
_QUERIES_AT_ONCE = 32
_SPARE = 6
_CANDIDATES_A_HIT = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32)
_MOST_CANDIDATES = 4000
# Of what is thorough enough for the candidates, this share of the rest may be lost by comparing too few of them again.
_LOST_TO_CODES = 0.5
_THOROUGH = 128
_RECALLS = (0.99, 0.995)  # of `usual` and of `sure`
_HARDER_FOR_GRAPHS = 0.005  # a graph finds so much less for shifted queries than for others
_FAR_NTH = 10  # the nearest but so many tell whether a query is far from all
_FAR_SHARE = 0.01  # so few of the stored vectors count as far from the others: what this costs searches near them
_FAR_QUERIES = (96, 32, 16)
_FAR_RECALL = 0.92  # of the farther half of points midway between two; of all of them more is found


@dataclass(frozen=True, slots=True)
class Level:
    """What to do for the nearest 10, 100 and 1000; between and beyond, in proportion.

    Attributes:
        candidates: How many to compare again.
        efforts: See `Structure.steps`.
    """

    candidates: tuple[int, ...]
    efforts: tuple[int, ...]

    def at(self, wanted: int) -> tuple[int, int]:
        """Candidates and effort for the nearest `wanted`."""
        return max(_in_proportion(self.candidates, wanted), wanted), _in_proportion(self.efforts, wanted)


@dataclass(frozen=True, slots=True)
class Far:
    """What to do for queries far from all vectors, such as those that lie midway between clusters.

    A graph leads to one of the clusters around them and seldom from there to the others.

    Attributes:
        below_e6: Far are queries whose tenth hit scores less than this, in millionths.
        efforts: For the nearest 10, 100 and 1000, as of a `Level`; they find 92 % even of the farthest of them.
    """

    below_e6: int
    efforts: tuple[int, ...]

    def at(self, wanted: int) -> int:
        """The effort for the nearest `wanted`."""
        return _in_proportion(self.efforts, wanted)

    def alone(self, matrix: Vectors, query: Vectors, rows: Rows) -> bool:
        """As `among` for one query, shape (1, d), and at least ten rows, shape (1, c): in a third of the time."""
        tenth = rows[0, _FAR_NTH - 1]
        return bool(tenth >= 0 and matrix[tenth].dot(query[0]) * 1e6 < self.below_e6)

    def among(self, matrix: Vectors, queries: Vectors, rows: Rows) -> NDArray[np.bool_]:
        """Which of the queries are far, shape (q,).

        Args:
            matrix: Unit vectors, shape (n, d).
            queries: Shape (q, d).
            rows: What was proposed for them, shape (q, c).
        """
        if rows.shape[1] < _FAR_NTH:
            return np.zeros(len(rows), dtype=np.bool_)
        tenth = rows[:, _FAR_NTH - 1]
        is_far: NDArray[np.bool_] = np.einsum("qd,qd->q", matrix[tenth], queries) * 1e6 < self.below_e6
        return is_far & (tenth >= 0)


@dataclass(frozen=True, slots=True)
class Effort:
    """Two levels, and for graphs what is done for queries far from all.

    Attributes:
        usual: Finds 99 % of the nearest.
        sure: Finds 99.5 %; for filters, which leave few of what is found.
        far: None where all queries are treated alike.
    """

    usual: Level
    sure: Level
    far: Far | None = None

    def parameters(self) -> dict[str, int]:
        """As they are kept with a segment."""
        kept = {
            f"{name}_{field}_{depth}": value
            for name, level in (("usual", self.usual), ("sure", self.sure))
            for field, values in (("candidates", level.candidates), ("effort", level.efforts))
            for depth, value in zip(DEPTHS, values, strict=True)
        }
        if self.far is not None:
            kept |= {f"far_effort_{depth}": value for depth, value in zip(DEPTHS, self.far.efforts, strict=True)}
            kept["far_below_e6"] = self.far.below_e6
        return kept


def kept_effort(parameters: Mapping[str, int]) -> Effort:
    """What `Effort.parameters` gave.

    Raises:
        KeyError: something is missing.
    """

    def values(name: str) -> tuple[int, ...]:
        return tuple(parameters[f"{name}_{depth}"] for depth in DEPTHS)

    def level(name: str) -> Level:
        return Level(values(f"{name}_candidates"), values(f"{name}_effort"))

    far = Far(parameters["far_below_e6"], values("far_effort")) if "far_below_e6" in parameters else None
    return Effort(level("usual"), level("sure"), far)


def measure_effort(structure: Structure, matrix: Vectors, stop: Callable[[], bool]) -> Effort:
    """Tries efforts on queries drawn near stored vectors until enough is found.

    Args:
        structure: Built over `matrix`.
        matrix: Unit vectors, shape (n, d).
        stop: Asked often; True ends it.

    Raises:
        MergeStopped: `stop` said so.
    """
    middle = matrix[sample_rows(len(matrix), _QUERIES[0])]
    neighbours = _nearest(matrix, middle, min(50, len(matrix)), stop)
    queries = _queries_near(matrix, middle, neighbours)
    least = [structure.steps[0], structure.steps[0]]
    found: list[list[tuple[int, int]]] = [[], []]
    for depth, few in zip(DEPTHS, _QUERIES, strict=True):
        some = np.ascontiguousarray(queries[:: max(1, len(queries) // few)])
        nearest = _nearest(matrix, some, min(depth, len(matrix) // 2), stop)
        for level, pair in enumerate(_enough(structure, some, nearest, least, stop)):
            found[level].append(pair)
            least[level] = pair[1]
    usual, sure = (Level(*zip(*pairs, strict=True)) for pairs in found)
    if structure.kind is not Kind.HNSW:
        return Effort(usual, sure)
    tenth_but_itself = np.einsum("qd,qd->q", matrix[neighbours[:, min(_FAR_NTH, neighbours.shape[1] - 1)]], middle)
    below = float(np.quantile(tenth_but_itself, _FAR_SHARE)) - ROUNDING
    return Effort(usual, sure, Far(int(below * 1e6), _enough_far(structure, matrix, usual, sure, stop)))


def _enough_far(
    structure: Structure, matrix: Vectors, usual: Level, sure: Level, stop: Callable[[], bool]
) -> tuple[int, ...]:
    """For each depth the least effort, beyond that for other queries, that finds enough for those far from all."""
    queries = _queries_far(matrix, stop)
    efforts: list[int] = []
    for depth, few, candidates, start in zip(DEPTHS, _FAR_QUERIES, usual.candidates, sure.efforts, strict=True):
        some = np.ascontiguousarray(queries[:: max(1, len(queries) // few)])
        nearest = _nearest(matrix, some, min(depth, len(matrix) // 2), stop)
        least = max([start, *efforts])
        efforts.append(_least_effort(structure, some, nearest, candidates, least, _FAR_RECALL, stop))
    return tuple(efforts)


def _least_effort(
    structure: Structure,
    queries: Vectors,
    nearest: Rows,
    candidates: int,
    least: int,
    wanted: float,
    stop: Callable[[], bool],
) -> int:
    """The least effort from `least` on that finds a share of the nearest; the most there is where none does."""
    efforts = [step for step in structure.steps if step >= least] or structure.steps[-1:]
    for effort in efforts[:-1]:
        if stop():
            raise MergeStopped("merging was stopped")
        if _share_found(structure.propose(queries, candidates, effort), nearest)[-1] >= wanted:
            return effort
    return efforts[-1]


def _enough(
    structure: Structure, queries: Vectors, nearest: Rows, least: list[int], stop: Callable[[], bool]
) -> Iterator[tuple[int, int]]:
    """For each level the fewest candidates, and then the least effort, that find its share of the nearest.

    Args:
        structure: What is asked.
        queries: Shape (q, d).
        nearest: Their nearest rows, shape (q, depth).
        least: Less effort need not be tried.
        stop: Asked often; True ends it.
    """
    depth = nearest.shape[1]
    most = min(_MOST_CANDIDATES, structure.most - _SPARE)
    sizes = [depth * each + _SPARE for each in _CANDIDATES_A_HIT if depth * each <= most]
    found = _share_found(structure.propose(queries, sizes[-1], _THOROUGH), nearest) if sizes else None
    for recall, start in zip(_RECALLS, least, strict=True):
        if found is None:  # more than it can name
            yield depth + _SPARE, structure.steps[-1]
            continue
        needed = (1 - (1 - recall) * _LOST_TO_CODES) * found[-1]
        candidates = next(size for size in sizes if found[size - 1] >= needed)
        wanted = recall - _HARDER_FOR_GRAPHS if structure.kind is Kind.HNSW else recall
        if structure.kind is Kind.HNSW:  # less effort than candidates is raised to their number
            start = max(start, candidates)  # noqa: PLW2901
        yield candidates, _least_effort(structure, queries, nearest, candidates, start, wanted, stop)


def _share_found(rows: Rows, nearest: Rows) -> NDArray[np.float64]:
    """Which share of the nearest is among the first 1, 2, … proposed, shape (c,)."""
    hits = [np.isin(proposed, best) for proposed, best in zip(rows, nearest, strict=True)]
    return np.asarray(np.cumsum(np.mean(hits, axis=0)) / nearest.shape[1])


def _queries_near(matrix: Vectors, middle: Vectors, neighbours: Rows) -> Vectors:
    """Points beside stored vectors, shifted by what distinguishes two of their neighbours.

    A stored vector is easier to find than a new one, since the structure was built around it. Shifted ones are a little
    harder than new ones, so that what is chosen by them is on the safe side.
    """
    generator = np.random.default_rng(1)
    lines = np.arange(len(middle))
    one, other = (neighbours[lines, generator.integers(neighbours.shape[1], size=len(middle))] for _ in range(2))
    return _unit(middle + np.float32(0.7) * (matrix[one] - matrix[other]), middle)


def _queries_far(matrix: Vectors, stop: Callable[[], bool]) -> Vectors:
    """Points midway between two stored vectors; of many, those that are farthest from all."""
    generator = np.random.default_rng(2)
    one, other = (matrix[generator.integers(len(matrix), size=2 * _FAR_QUERIES[0])] for _ in range(2))
    midway = _unit(one + other, one)
    tenth = _nearest(matrix, midway, min(_FAR_NTH, len(matrix)), stop)[:, -1]
    return midway[np.argsort(np.einsum("qd,qd->q", matrix[tenth], midway))[: _FAR_QUERIES[0]]]


def _unit(points: Vectors, instead: Vectors) -> Vectors:
    """Points at length 1; where one is zero, another instead of it."""
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    unit: NDArray[np.float32] = np.where(norms > 0, points / np.maximum(norms, 1e-12), instead).astype(np.float32)
    return np.ascontiguousarray(unit)


def _nearest(matrix: Vectors, queries: Vectors, wanted: int, stop: Callable[[], bool]) -> Rows:
    """Rows of the nearest by comparing with all, shape (q, wanted)."""
    faiss = import_faiss()
    parts = []
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        if stop():
            raise MergeStopped("merging was stopped")
        parts.append(
            faiss.knn(queries[start : start + _QUERIES_AT_ONCE], matrix, wanted, faiss.METRIC_INNER_PRODUCT)[1]
        )
    return np.concatenate(parts)


def _in_proportion(at: tuple[int, ...], wanted: int) -> int:
    """On the line through the values for the two depths around; beyond the last as many times its value."""
    if wanted >= DEPTHS[-1]:
        return -(-at[-1] * wanted // DEPTHS[-1])
    right = 1 if wanted < DEPTHS[1] else 2
    low, high = DEPTHS[right - 1 : right + 1]
    part = max(wanted - low, 0)
    return at[right - 1] + -(-(at[right] - at[right - 1]) * part // (high - low))
