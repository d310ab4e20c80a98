"""Lists of near vectors, kept at one byte a dimension."""

from __future__ import annotations

from collections.abc import Callable

from twinlens.index.faiss_library import import_faiss
from twinlens.index.kinds.clusters import count_lists, fill_lists, train_centres
from twinlens.index.kinds.faiss_structure import FaissStructure
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.sample import sample_rows
from twinlens.index.protocol import Vectors

_TRAINED_ROWS = 50_000


def build_ivf_flat(matrix: Vectors, stop: Callable[[], bool]) -> FaissStructure:
    """Builds the lists. Their bytes need a quarter of the floats' memory, and candidates are compared again anyway.

    Args:
        matrix: Unit vectors, shape (n, d).
        stop: Asked often; True ends it.

    Raises:
        MergeStopped: `stop` said so.
    """
    faiss = import_faiss()
    lists = count_lists(len(matrix))
    centres = train_centres(matrix, lists, stop)
    index = faiss.IndexIVFScalarQuantizer(
        centres, matrix.shape[1], lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT, False
    )
    index.train(matrix[sample_rows(len(matrix), _TRAINED_ROWS)])
    fill_lists(index, matrix, stop)
    return FaissStructure(Kind.IVF_FLAT, index, {"nlist": lists})


def ivf_flat_bytes(count: int, dimension: int) -> int:
    """Memory of the lists: a byte a dimension and a number for each vector, and the centres."""
    return count * (dimension + 8) + count_lists(count) * dimension * 4
