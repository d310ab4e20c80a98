"""Naming the first of many findings and counting the rest."""

from __future__ import annotations

from collections.abc import Iterator

from twinlens.index.operations.steps import Finding

_NAMED = 50


class Few:
    """Findings of one sort: whoever reads a list of a million has learnt nothing more from the last of them."""

    def __init__(self, part: str) -> None:
        """Begins with none; `part` is that of the findings."""
        self._part = part
        self._count = 0

    def found(self, subject: str, message: str) -> Iterator[Finding]:
        """Yields the finding, unless there were many before."""
        self._count += 1
        if self._count <= _NAMED:
            yield Finding(self._part, subject, message)

    def rest(self) -> Iterator[Finding]:
        """Yields how many were not named, if there were such."""
        if self._count > _NAMED:
            yield Finding(self._part, "", f"and {self._count - _NAMED} more like the last one")
