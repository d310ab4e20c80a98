"""What all collections of a catalog are searched with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from twinlens.index.options import IndexOptions
from twinlens.index.protocol import VectorIndex
from twinlens.index.reserve import Reserve
from twinlens.index.search_threads import SearchThreads
from twinlens.index.tree.maintenance import Maintenance

EngineFactory = Callable[[int], VectorIndex]
"""Makes an empty engine for vectors of a given dimension."""


@dataclass(frozen=True, slots=True)
class Engines:
    """How engines come to be, and what they share.

    Attributes:
        options: As given to the catalog.
        threads: What all searches and merges together may use.
        maintenance: Merges in the background.
        reserve: What deletions have when the disk is full.
        factory: Makes another engine than FAISS with merges; filled from the database on every opening.
    """

    options: IndexOptions
    threads: SearchThreads
    maintenance: Maintenance = field(default_factory=Maintenance)
    factory: EngineFactory | None = None
    reserve: Reserve = field(default_factory=lambda: Reserve(Path(), 0))
