"""What searches see at one time: merged vectors, those hidden among them, and fresh ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from twinlens.index.flat import FlatIndex
from twinlens.index.kinds.main_index import MainIndex
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.tree.join import join, overlap

_ATTEMPTS = 8


class View:
    """A main index that never changes under a delta that does.

    A writer puts a vector into the delta before it hides the merged one; a reader searches main first and the delta
    after. So a reader sees a vector as it was before a change or after it, or both, and then what the delta says
    counts; it never sees none.

    Attributes:
        main: The merged vectors, if there are any.
        delta: Fresh vectors, all of them compared.
        shown: Which rows of main may be found, shape (n,); None: all. Never changed in place, so that a search has one
            and the same from beginning to end.
        hidden: How many rows may not be found.
    """

    def __init__(self, main: MainIndex | None, delta: FlatIndex) -> None:
        self.main = main
        self.delta = delta
        self.shown: NDArray[np.bool_] | None = None
        self.hidden = 0
        self._lock = threading.Lock()
        self._readers = 0
        self._retired = False

    @property
    def merged(self) -> int:
        """How many rows main has, hidden ones included."""
        return 0 if self.main is None else len(self.main.keys)

    def upsert(self, keys: Keys, vectors: Vectors) -> None:
        """Adds vectors or replaces those of keys already there. One caller at a time, as for `delete`."""
        self.delta.upsert(keys, vectors)
        self._hide(keys)

    def delete(self, keys: Keys) -> None:
        """Removes keys; unknown ones are ignored."""
        self._hide(keys)
        self.delta.delete(keys)

    def _hide(self, keys: Keys) -> None:
        """Lets the merged vectors of these keys not be found any more."""
        if self.main is None or len(keys) == 0:
            return
        rows = np.unique(_rows_of(keys, self.main.keys))
        if self.shown is not None:
            rows = rows[self.shown[rows]]
        if len(rows) == 0:
            return
        shown = np.ones(self.merged, dtype=np.bool_) if self.shown is None else self.shown.copy()
        shown[rows] = False
        self.hidden += len(rows)
        self.shown = shown

    def search(self, queries: Vectors, top_k: int, *, exact: bool, among: Keys | None) -> tuple[Vectors, Keys]:
        """As `VectorIndex.search`."""
        if self.main is None:
            return self.delta.search(queries, top_k, exact=exact, among=among)
        for attempt in range(_ATTEMPTS):
            merged = self._search_main(self.main, queries, top_k, exact=exact, among=among)
            if len(self.delta) == 0:
                return merged
            fresh = self.delta.search(queries, top_k, exact=exact, among=among)
            # A merged hit that was replaced in between may have kept another one off the list: once more, then.
            if attempt == _ATTEMPTS - 1 or not overlap(merged, fresh):
                break
        return join(merged, fresh, top_k)

    @contextmanager
    def reading(self) -> Iterator[bool]:
        """Keeps it open within the block; False where it is retired, because another one has taken its place."""
        with self._lock:
            open_ = not self._retired
            self._readers += open_
        try:
            yield open_
        finally:
            if open_:
                with self._lock:
                    self._readers -= 1
                    last = self._retired and not self._readers
                if last:
                    self._close()

    def retire(self) -> None:
        """Closes it as soon as no search runs on it any more, without waiting for that."""
        with self._lock:
            idle = not self._retired and not self._readers
            self._retired = True
        if idle:
            self._close()

    def _search_main(
        self, main: MainIndex, queries: Vectors, top_k: int, *, exact: bool, among: Keys | None
    ) -> tuple[Vectors, Keys]:
        shown = self.shown
        if among is not None:
            allowed = np.zeros(len(main.keys), dtype=np.bool_)
            allowed[_rows_of(among, main.keys)] = True
            shown = allowed if shown is None else shown & allowed
        return main.search(queries, top_k, shown=shown, exact=exact)

    def _close(self) -> None:
        if self.main is not None:
            self.main.close()
        self.delta.close()


def _rows_of(keys: Keys, ascending: Keys) -> NDArray[np.int64]:
    """The rows in which those of the keys lie that are there."""
    rows = np.searchsorted(ascending, keys)
    within = rows < len(ascending)
    rows, keys = rows[within], keys[within]
    found: NDArray[np.int64] = rows[ascending[rows] == keys]
    return found
