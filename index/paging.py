"""Arguments of calls that return a page."""

from __future__ import annotations

from twinlens.index.errors import InvalidArgument


def check_limit(limit: int) -> int:
    """Returns how many are wanted, no more than SQLite can count.

    Raises:
        InvalidArgument: fewer than one.
    """
    if limit < 1:
        raise InvalidArgument(f"the limit is {limit}, but must be at least 1")
    return min(limit, 2**63 - 1)
