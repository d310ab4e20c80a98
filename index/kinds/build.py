"""From a kind to the structure of that kind."""

from __future__ import annotations

from collections.abc import Callable

from twinlens.index.kinds import auto
from twinlens.index.kinds.faiss_structure import FaissStructure
from twinlens.index.kinds.hnsw import build_hnsw
from twinlens.index.kinds.ivf_flat import build_ivf_flat
from twinlens.index.kinds.ivf_pq import build_ivf_pq
from twinlens.index.kinds.kind import Kind
from twinlens.index.protocol import Vectors
from twinlens.index.search_threads import SearchThreads


def build_structure(
    kind: Kind, matrix: Vectors, threads: SearchThreads, stop: Callable[[], bool]
) -> FaissStructure | None:
    """Builds what lies over vectors, beside the searches that run.

    Args:
        kind: Not `auto`.
        matrix: Unit vectors, shape (n, d), C order.
        threads: How many to use; they are not taken from searches.
        stop: Asked often; True ends it.

    Returns:
        None for `flat`, and where there are too few vectors for another.

    Raises:
        MergeStopped: `stop` said so.
    """
    builders = {Kind.HNSW: build_hnsw, Kind.IVF_FLAT: build_ivf_flat, Kind.IVF_PQ: build_ivf_pq}
    if kind is Kind.FLAT or len(matrix) < auto.LEAST_ROWS:
        return None
    with threads.beside():
        return builders[kind](matrix, stop)
