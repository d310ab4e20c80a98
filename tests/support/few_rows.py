"""Structures over few vectors, so that small tests reach what otherwise takes thousands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from twinlens.index.kinds import auto


@contextmanager
def structures_from(rows: int) -> Iterator[None]:
    """Within the block a kind other than `flat` gets its structure from so many vectors on."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(auto, "LEAST_ROWS", rows)
        yield
