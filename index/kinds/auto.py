"""Which kind suits how many vectors, and what it takes in memory."""

from __future__ import annotations

from twinlens.index.kinds.hnsw import hnsw_bytes
from twinlens.index.kinds.ivf_flat import ivf_flat_bytes
from twinlens.index.kinds.ivf_pq import ivf_pq_bytes
from twinlens.index.kinds.kind import Kind

# Below, there is no structure over the vectors, whatever the kind: comparing with all takes no longer.
LEAST_ROWS = 1024

# Up to here `auto` compares with all: about a millisecond for 512 dimensions, and nothing is missed.
FLAT_ROWS = 10_000

_BY_SPEED = (Kind.HNSW, Kind.IVF_FLAT, Kind.IVF_PQ)


def choose_kind(kind: Kind, count: int, dimension: int, memory_bytes: int | None = None) -> Kind:
    """Turns `auto` into the fastest kind that fits; any other stays what it is.

    `flat` up to `FLAT_ROWS`, then `hnsw`, `ivf_flat` or `ivf_pq`: the first whose `estimate` is within the memory, and
    `ivf_pq` where none is.

    Args:
        kind: What was asked for.
        count: How many vectors.
        dimension: Their length.
        memory_bytes: What it may take; None: as much as it likes.
    """
    if kind is not Kind.AUTO:
        return kind
    if count <= FLAT_ROWS:
        return Kind.FLAT
    if memory_bytes is None:
        return Kind.HNSW
    return next((each for each in _BY_SPEED if estimate(each, count, dimension) <= memory_bytes), Kind.IVF_PQ)


def estimate(kind: Kind, count: int, dimension: int) -> int:
    """Bytes of memory that merged vectors of a kind take, without the stored vectors, which are only mapped.

    Those are 4 bytes a dimension in the system's page cache, of which `flat` reads all for every search, and the others
    some for every hit.
    """
    keys = 8 * count
    of_kind = {Kind.HNSW: hnsw_bytes, Kind.IVF_FLAT: ivf_flat_bytes, Kind.IVF_PQ: ivf_pq_bytes}
    kind = choose_kind(kind, count, dimension)
    if kind is Kind.FLAT or count < LEAST_ROWS:
        return keys
    return keys + of_kind[kind](count, dimension)
