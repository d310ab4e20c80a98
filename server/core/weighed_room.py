"""Room for so much at a time, given in the order in which it was asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class WeighedRoom:
    """Holds what weighs no more than so much together; what weighs more than all of it is held alone.

    Args:
        most: How much.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    @property
    def held(self) -> int:
        """How much is held now."""
        return self._held

    @asynccontextmanager
    async def hold(self, weight: int) -> AsyncIterator[None]:
        """Waits for room, behind all who wait already, and holds it."""
        await self._enter(weight)
        try:
            yield
        finally:
            self._leave(weight)

    async def _enter(self, weight: int) -> None:
        if not self._waiting and self._fits(weight):
            self._held += weight
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, weight))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was let in just when it gave up
                self._leave(weight)
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove((turn, weight))
                self._let_in()
            raise

    def _leave(self, weight: int) -> None:
        self._held -= weight
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            turn, weight = self._waiting.popleft()
            if not turn.done():
                self._held += weight
                turn.set_result(None)

    def _fits(self, weight: int) -> bool:
        return not self._held or self._held + weight <= self._most
