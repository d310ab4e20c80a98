"""Lists of near vectors, kept as short codes.

Product quantization: Jégou, Douze and Schmid 2011, https://inria.hal.science/inria-00514462; with four bits a code the
tables fit the CPU's registers: André, Kermarrec and Le Scouarnec 2015, https://www.vldb.org/pvldb/vol9/p288-andre.pdf.
"""

from __future__ import annotations

from collections.abc import Callable

from twinlens.index.faiss_library import import_faiss
from twinlens.index.kinds.clusters import count_lists, fill_lists, train_centres
from twinlens.index.kinds.faiss_structure import FaissStructure
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.sample import sample_rows
from twinlens.index.protocol import Vectors

_BITS = 4
_TRAINED_ROWS = 20_000


def pq_codes(dimension: int) -> int:
    """How many codes a vector has: one for every two dimensions, or three or one where the number will not divide."""
    return next(dimension // width for width in (2, 3, 1) if dimension % width == 0)


def build_ivf_pq(matrix: Vectors, stop: Callable[[], bool]) -> FaissStructure:
    """Builds the lists: two bits a dimension. Many candidates are compared again for every hit that is wanted.

    Args:
        matrix: Unit vectors, shape (n, d).
        stop: Asked often; True ends it.

    Raises:
        MergeStopped: `stop` said so.
    """
    faiss = import_faiss()
    dimension = matrix.shape[1]
    lists, codes = count_lists(len(matrix)), pq_codes(dimension)
    centres = train_centres(matrix, lists, stop)
    index = faiss.IndexIVFPQFastScan(centres, dimension, lists, codes, _BITS, faiss.METRIC_INNER_PRODUCT)
    index.pq.cp.min_points_per_centroid = 1
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # hundreds of clusterings of two dimensions: handing them out takes longer than doing
    index.train(matrix[sample_rows(len(matrix), _TRAINED_ROWS)])
    faiss.omp_set_num_threads(threads)
    fill_lists(index, matrix, stop)
    return FaissStructure(Kind.IVF_PQ, index, {"nlist": lists, "pq_m": codes, "pq_bits": _BITS})


def ivf_pq_bytes(count: int, dimension: int) -> int:
    """Memory of the lists: four bits a code and a number for each vector, and the centres."""
    return count * ((pq_codes(dimension) + 1) // 2 + 8) + count_lists(count) * dimension * 4
