"""Which structure finds the nearest vectors of a collection."""

from __future__ import annotations

from enum import StrEnum

from twinlens.index.errors import InvalidArgument


class Kind(StrEnum):
    """What lies over the vectors that are merged; fresh ones are always compared one by one."""

    AUTO = "auto"
    FLAT = "flat"
    HNSW = "hnsw"
    IVF_FLAT = "ivf_flat"
    IVF_PQ = "ivf_pq"


def check_kind(kind: Kind | str) -> Kind:
    """Returns the kind meant.

    Raises:
        InvalidArgument: there is none of that name.
    """
    try:
        return Kind(kind)
    except ValueError as error:
        raise InvalidArgument(f"index kind {kind!r}: it must be one of {', '.join(Kind)}") from error
