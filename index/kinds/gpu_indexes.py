"""What each kind becomes on a GPU. All of this runs in the thread that owns the index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinlens.index.faiss_library import import_faiss
from twinlens.index.kinds.clusters import count_lists
from twinlens.index.kinds.gpu_thread import Found, SearchOnGpu
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.sample import sample_rows
from twinlens.index.protocol import Vectors

# FAISS's kernels select no more than this from one list: `getMaxKSelection` without cuVS.
MOST_SELECTED = 2048
# CAGRA keeps so many candidates in the memory of one thread block.
MOST_IN_GRAPH = 512
_TEMPORARY_BYTES = 256 << 20  # reserved by each index; FAISS would take 1.5 GiB
_PIECE_ROWS = 65536
_TRAINED_ROWS = 200_000
# Code lengths that the kernels are compiled for: `GpuIndexIVFPQ::isSupportedPQCodeLength`.
_CODES = (64, 56, 48, 40, 32, 28, 24, 20, 16, 12, 8, 4, 3, 2, 1)


@dataclass(frozen=True, slots=True)
class GpuForm:
    """How a kind is searched on a GPU.

    Attributes:
        build: Makes it; to be called in the thread that will own it.
        most: How many it can find at once.
        exact: It compares with every vector.
        measured: Efforts that were measured on the CPU hold for it.
        steps: See `Structure`.
    """

    build: Callable[[], SearchOnGpu]
    most: int
    exact: bool
    measured: bool
    steps: tuple[int, ...]


def gpu_form(kind: Kind, on_cpu: Any, matrix: Vectors, steps: tuple[int, ...]) -> GpuForm:
    """Chooses what to build.

    A graph is CAGRA's (Ootomo et al. 2023, https://arxiv.org/abs/2308.15136), made anew from the vectors; FAISS has it
    where it was built with cuVS, which the wheels on PyPI are not. Without, all vectors are compared, which a GPU does
    faster than a CPU walks the graph.

    Args:
        kind: Of the segment.
        on_cpu: FAISS's index of it; None for `flat`.
        matrix: Unit vectors, shape (n, d).
        steps: Efforts of the structure on the CPU.
    """
    lists = len(matrix) if on_cpu is None else int(getattr(on_cpu, "nlist", 0))
    probes = tuple(step for step in steps if step <= min(MOST_SELECTED, lists))
    match kind:
        case Kind.IVF_FLAT:
            return GpuForm(lambda: _lists(on_cpu), MOST_SELECTED, exact=False, measured=True, steps=probes)
        case Kind.IVF_PQ:
            return GpuForm(lambda: _codes(matrix), MOST_SELECTED, exact=False, measured=False, steps=probes)
        case Kind.HNSW if hasattr(import_faiss(), "GpuIndexCagra"):
            kept = tuple(range(32, MOST_IN_GRAPH + 1, 32))
            return GpuForm(lambda: _graph(matrix), MOST_IN_GRAPH, exact=False, measured=False, steps=kept)
        case _:
            return GpuForm(lambda: _flat(matrix), MOST_SELECTED, exact=True, measured=True, steps=(1,))


def _flat(matrix: Vectors) -> SearchOnGpu:
    index = import_faiss().GpuIndexFlatIP(_resources(), matrix.shape[1])
    _fill(index, matrix)
    return lambda queries, wanted, _: _found(index, queries, wanted, None)


def _lists(on_cpu: Any) -> SearchOnGpu:
    """The same lists with the same bytes, so that what was measured on the CPU holds."""
    faiss = import_faiss()
    resources = _resources()
    index = faiss.index_cpu_to_gpu(resources, 0, on_cpu)
    most = min(int(on_cpu.nlist), MOST_SELECTED)

    def search(queries: Vectors, wanted: int, effort: int, _: Any = resources) -> Found:
        return _found(index, queries, wanted, faiss.SearchParametersIVF(nprobe=min(effort, most)))

    return search


def _codes(matrix: Vectors) -> SearchOnGpu:
    """Eight-bit codes, made anew: the four-bit ones of the CPU are laid out for its registers."""
    faiss = import_faiss()
    dimension = matrix.shape[1]
    settings = faiss.GpuIndexIVFPQConfig()
    settings.useFloat16LookupTables = True  # those of 64 codes would not fit a thread block's memory otherwise
    codes = next(codes for codes in _CODES if dimension % codes == 0)
    lists = count_lists(len(matrix))
    most = min(lists, MOST_SELECTED)
    index = faiss.GpuIndexIVFPQ(_resources(), dimension, lists, codes, 8, faiss.METRIC_INNER_PRODUCT, settings)
    index.train(np.ascontiguousarray(matrix[sample_rows(len(matrix), _TRAINED_ROWS)]))
    _fill(index, matrix)

    def search(queries: Vectors, wanted: int, effort: int) -> Found:
        return _found(index, queries, wanted, faiss.SearchParametersIVF(nprobe=min(effort, most)))

    return search


def _graph(matrix: Vectors) -> SearchOnGpu:
    faiss = import_faiss()
    resources = _resources()
    # Among unit vectors the nearest by distance are the nearest by cosine.
    index = faiss.GpuIndexCagra(resources, matrix.shape[1], faiss.METRIC_L2, faiss.GpuIndexCagraConfig())
    count = len(matrix)
    index.train(np.ascontiguousarray(matrix))

    def search(queries: Vectors, wanted: int, effort: int, _: Any = resources) -> Found:
        settings = faiss.SearchParametersCagra()
        settings.itopk_size = max(effort, -(-wanted // 32) * 32)
        distances, rows = _found(index, queries, wanted, settings)
        return distances, np.where(rows < count, rows, -1)  # where there are no more, numbers that are no rows

    return search


def _resources() -> Any:
    resources = import_faiss().StandardGpuResources()
    resources.setTempMemory(_TEMPORARY_BYTES)
    return resources


def _fill(index: Any, matrix: Vectors) -> None:
    for start in range(0, len(matrix), _PIECE_ROWS):
        index.add(np.ascontiguousarray(matrix[start : start + _PIECE_ROWS]))


def _found(index: Any, queries: Vectors, wanted: int, settings: Any) -> Found:
    scores, rows = index.search(queries, wanted, params=settings)
    return scores, rows
