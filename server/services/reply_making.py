"""Where replies are made: small ones at once, large ones not on the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twinlens.server.core.call import Call
from twinlens.server.core.pool import WorkerPool

R = TypeVar("R")

# Making one takes less than handing it to a thread and back, which all that run Python have to wait for.
_SMALL = 4096
# Of a hit with what is stored with it.
HIT_SIZE = 64


async def made(make: Callable[[], R], size: int, io: WorkerPool, call: Call) -> R:
    """Makes a reply.

    Args:
        make: Makes it.
        size: What it holds, in numbers.
        io: Makes large ones.
        call: Whom it is for.
    """
    return make() if size <= _SMALL else await io.submit(call.priority, make)
