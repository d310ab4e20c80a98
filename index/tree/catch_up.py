"""Bringing what holds vectors from what it has seen to what is committed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from twinlens.index.errors import MergeStopped
from twinlens.index.generations import Generation
from twinlens.index.item import Modality
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.tree.changes import changed_since, newest_change
from twinlens.index.tree.source import of_keys

_AT_ONCE = 2048


class Follower(Protocol):
    """What holds vectors by their keys."""

    def upsert(self, keys: Keys, vectors: Vectors) -> None:
        """Adds or replaces vectors."""

    def delete(self, keys: Keys) -> None:
        """Removes what is there of these keys."""


@dataclass(frozen=True, slots=True)
class Step:
    """What was caught up with: through which change, and how many there were."""

    through: int
    entries: int


def catch_up(
    connection: sqlite3.Connection,
    follower: Follower,
    generation: Generation,
    modality: Modality,
    through: int,
    name: str,
    *,
    stop: Callable[[], bool] = lambda: False,
) -> Step:
    """Takes over the present vectors of all items changed after `through`; nobody else may change the follower.

    Args:
        connection: Inside a transaction, so that all is of one moment.
        follower: What to change.
        generation: Whose vectors.
        modality: Which of them.
        through: Number of the last change that the follower has seen.
        name: What to call the collection in an error.
        stop: Asked often; True ends it.

    Raises:
        CorruptCollection: a vector is damaged.
        MergeStopped: `stop` said so.
    """
    newest = newest_change(connection)
    entries, items = changed_since(connection, through)
    for start in range(0, len(items), _AT_ONCE):
        if stop():
            raise MergeStopped("merging was stopped")
        changed = items[start : start + _AT_ONCE]
        keys, vectors = of_keys(connection, generation, modality, changed, name)
        if len(keys):
            follower.upsert(keys, vectors)
        if len(keys) < len(changed):
            follower.delete(np.setdiff1d(np.array(changed, dtype=np.int64), keys))
    return Step(newest, entries)
