"""Giving memory back to the system."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from typing import Any


def return_free_memory() -> None:
    """Hands back what the allocator holds free; without it glibc keeps the weights of a model that was let go.

    Nothing happens where the C library has no such call.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@lru_cache(maxsize=1)
def _malloc_trim() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # musl has none
        return None
