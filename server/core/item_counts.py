"""Counting what is brought to the towers, and what became of it: together the same, once all is answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from twinlens.server.core.telemetry import Telemetry


class _HasVector(Protocol):
    @property
    def vector(self) -> object: ...


@dataclass(slots=True)
class Answers:
    """What became of the items of one call so far."""

    embedded: int = 0
    failed: int = 0

    def note(self, outcomes: Iterable[_HasVector]) -> None:
        """Tells what became of items."""
        for outcome in outcomes:
            if outcome.vector is None:
                self.failed += 1
            else:
                self.embedded += 1


class ItemCounts:
    """Counts items, and their outcomes: embedded, failed (alone), or abandoned (with their call)."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._came = telemetry.items
        self._embedded = telemetry.item_outcomes.labels("embedded")
        self._failed = telemetry.item_outcomes.labels("failed")
        self._abandoned = telemetry.item_outcomes.labels("abandoned")

    @contextmanager
    def counted(self, items: int) -> Iterator[Answers]:
        """Counts items while the block works on them; what it does not note until it ends is abandoned."""
        answers = Answers()
        self._came.inc(items)
        try:
            yield answers
        finally:
            self._embedded.inc(answers.embedded)
            self._failed.inc(answers.failed)
            self._abandoned.inc(items - answers.embedded - answers.failed)
