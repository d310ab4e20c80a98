"""How thoroughly to search so that enough of the nearest are found, measured when a structure is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import MergeStopped
from twinlens.index.faiss_library import import_faiss
from twinlens.index.kinds.exact import Rows
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
class Effort:
    """Two levels.

    Attributes:
        usual: Finds 99 % of the nearest.
        sure: Finds 99.5 %; for filters, which leave few of what is found.
    """

    usual: Level
    sure: Level

    def parameters(self) -> dict[str, int]:
        """As they are kept with a segment."""
        return {
            f"{name}_{field}_{depth}": value
            for name, level in (("usual", self.usual), ("sure", self.sure))
            for field, values in (("candidates", level.candidates), ("effort", level.efforts))
            for depth, value in zip(DEPTHS, values, strict=True)
        }


def kept_effort(parameters: Mapping[str, int]) -> Effort:
    """What `Effort.parameters` gave.

    Raises:
        KeyError: something is missing.
    """

    def values(name: str) -> tuple[int, ...]:
        return tuple(parameters[f"{name}_{depth}"] for depth in DEPTHS)

    def level(name: str) -> Level:
        return Level(values(f"{name}_candidates"), values(f"{name}_effort"))

    return Effort(level("usual"), level("sure"))


def measure_effort(structure: Structure, matrix: Vectors, stop: Callable[[], bool]) -> Effort:
    """Tries efforts on queries drawn near stored vectors until enough is found.

    Args:
        structure: Built over `matrix`.
        matrix: Unit vectors, shape (n, d).
        stop: Asked often; True ends it.

    Raises:
        MergeStopped: `stop` said so.
    """
    queries = _queries_near(matrix, stop)
    least = [structure.steps[0], structure.steps[0]]
    found: list[list[tuple[int, int]]] = [[], []]
    for depth, few in zip(DEPTHS, _QUERIES, strict=True):
        some = np.ascontiguousarray(queries[:: max(1, len(queries) // few)])
        nearest = _nearest(matrix, some, min(depth, len(matrix) // 2), stop)
        for level, pair in enumerate(_enough(structure, some, nearest, least, stop)):
            found[level].append(pair)
            least[level] = pair[1]
    usual, sure = (Level(*zip(*pairs, strict=True)) for pairs in found)
    return Effort(usual, sure)


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
        for effort in [step for step in structure.steps if step >= start] or structure.steps[-1:]:
            if stop():
                raise MergeStopped("merging was stopped")
            if _share_found(structure.propose(queries, candidates, effort), nearest)[-1] >= wanted:
                break
        yield candidates, effort


def _share_found(rows: Rows, nearest: Rows) -> NDArray[np.float64]:
    """Which share of the nearest is among the first 1, 2, … proposed, shape (c,)."""
    hits = [np.isin(proposed, best) for proposed, best in zip(rows, nearest, strict=True)]
    return np.asarray(np.cumsum(np.mean(hits, axis=0)) / nearest.shape[1])


def _queries_near(matrix: Vectors, stop: Callable[[], bool]) -> Vectors:
    """Points beside stored vectors, shifted by what distinguishes two of their neighbours.

    A stored vector is easier to find than a new one, since the structure was built around it. Shifted ones are a little
    harder than new ones, so that what is chosen by them is on the safe side.
    """
    generator = np.random.default_rng(1)
    rows = sample_rows(len(matrix), _QUERIES[0])
    middle = matrix[rows]
    neighbours = _nearest(matrix, middle, min(50, len(matrix)), stop)
    lines = np.arange(len(rows))
    one, other = (neighbours[lines, generator.integers(neighbours.shape[1], size=len(rows))] for _ in range(2))
    shifted = middle + np.float32(0.7) * (matrix[one] - matrix[other])
    norms = np.linalg.norm(shifted, axis=1, keepdims=True)
    unit: NDArray[np.float32] = np.where(norms > 0, shifted / np.maximum(norms, 1e-12), middle).astype(np.float32)
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
