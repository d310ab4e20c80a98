"""Shows where a filter is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from twinlens.client.errors import TwinlensError
from twinlens.client.progress import print_line, stderr_console

_COLUMN = re.compile(r"filter, column (\d+): ")  # how a server's message about a filter begins
_WIDTH = 76  # characters of the filter that are shown


@contextmanager
def pointing_into(filter_: str) -> Iterator[None]:
    """Prints the filter with a caret under what is wrong, where a call inside fails for that."""
    try:
        yield
    except TwinlensError as error:
        found = _COLUMN.match(error.message)
        if found is not None:
            for line in _pointed(filter_, int(found[1])):
                print_line(stderr_console(), line)
        raise


def _pointed(filter_: str, column: int) -> tuple[str, str]:
    """Two lines: the filter, or the part of a long one around the column (counted from 1), and the caret."""
    start = max(0, min(column - 1 - _WIDTH // 2, len(filter_) + 1 - _WIDTH))
    shown = "".join(each if each.isprintable() else " " for each in filter_[start : start + _WIDTH])
    return f"  {shown}", f"  {' ' * (column - 1 - start)}^"
