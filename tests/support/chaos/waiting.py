"""Waiting for what is to come, in a process that cannot tell of it by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

PATIENCE_S = 30.0
_EVERY_S = 0.01


async def eventually(
    what: str, condition: Callable[[], bool | Awaitable[bool]], *, within_s: float = PATIENCE_S
) -> float:
    """Waits until something is the case.

    Returns:
        Seconds that it took.

    Raises:
        AssertionError: if it did not come.
    """
    start_s = time.monotonic()
    while not await _holds(condition):
        assert time.monotonic() - start_s < within_s, f"waited {within_s:g} s in vain: {what}"
        await asyncio.sleep(_EVERY_S)
    return time.monotonic() - start_s


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    holds = condition()
    return holds if isinstance(holds, bool) else await holds
