"""A graph of near neighbours: Malkov and Yashunin 2016, https://arxiv.org/abs/1603.09320."""

from __future__ import annotations

from collections.abc import Callable

from twinlens.index.errors import MergeStopped
from twinlens.index.faiss_library import import_faiss
from twinlens.index.kinds.faiss_structure import FaissStructure
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.sample import sample_rows
from twinlens.index.protocol import Vectors

M = 24
EF_CONSTRUCTION = 100
_TRAINED_ROWS = 50_000
_ADDED_ROWS = 1024


def build_hnsw(matrix: Vectors, stop: Callable[[], bool]) -> FaissStructure:
    """Builds the graph over one byte a dimension.

    A quarter of the floats' memory is fetched for each comparison, which is what a search spends its time on; what the
    bytes blur is put right when candidates are compared again with the stored vectors.

    Args:
        matrix: Unit vectors, shape (n, d).
        stop: Asked often; True ends it.

    Raises:
        MergeStopped: `stop` said so.
    """
    faiss = import_faiss()
    index = faiss.IndexHNSWSQ(matrix.shape[1], faiss.ScalarQuantizer.QT_8bit, M, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = EF_CONSTRUCTION
    index.train(matrix[sample_rows(len(matrix), _TRAINED_ROWS)])
    for start in range(0, len(matrix), _ADDED_ROWS):
        if stop():
            raise MergeStopped("merging was stopped")
        index.add(matrix[start : start + _ADDED_ROWS])
    return FaissStructure(Kind.HNSW, index, {"m": M, "ef_construction": EF_CONSTRUCTION})


def hnsw_bytes(count: int, dimension: int) -> int:
    """Memory of a graph: a byte a dimension, links of the lowest layer and, for one in M, of those above."""
    return count * (dimension + 4 * (2 * M + 1) + 16)
