"""The engine of a collection by itself: a tree that merges every so often, so that tests of engines cover all of it."""

from __future__ import annotations

import itertools
import uuid
from pathlib import Path

import numpy as np

from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.segment import open_segment, write_segment
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.search_threads import SearchThreads
from twinlens.index.tree.tree_index import TreeIndex


class MergingIndex:
    """A `VectorIndex` that merges after the first change, the second, the fourth, the eighth, and so on.

    So most searches see merged, hidden and fresh vectors.
    """

    def __init__(self, folder: Path, dimension: int, *, kind: Kind) -> None:
        """Makes an empty one that keeps its segments in a folder."""
        self._dimension = dimension
        self._kind = kind
        self._threads = SearchThreads(1)
        self._tree = TreeIndex(dimension, self._threads)
        self._held: dict[int, Vectors] = {}
        self._changes = itertools.count(1)
        self._folder = folder

    def upsert(self, keys: Keys, vectors: Vectors) -> None:
        """Changes the tree."""
        self._tree.upsert(keys, vectors)
        self._held.update(zip(keys.tolist(), vectors.copy(), strict=True))
        self._merge_at_times()

    def delete(self, keys: Keys) -> None:
        """Changes the tree."""
        self._tree.delete(keys)
        for key in keys.tolist():
            self._held.pop(key, None)
        self._merge_at_times()

    def search(
        self, queries: Vectors, top_k: int, *, exact: bool = False, among: Keys | None = None
    ) -> tuple[Vectors, Keys]:
        """Searches the tree."""
        return self._tree.search(queries, top_k, exact=exact, among=among)

    def __len__(self) -> int:
        """Of the tree."""
        return len(self._tree)

    def close(self) -> None:
        """Closes the tree."""
        self._tree.close()

    def merge(self) -> None:
        """Merges all there is."""
        folder = self._folder / uuid.uuid4().hex
        keys = np.array(sorted(self._held), dtype=np.int64)
        chunks = [(keys, np.stack([self._held[key] for key in keys.tolist()]))] if len(keys) else []
        write_segment(folder, chunks, dimension=self._dimension, kind=self._kind, threads=self._threads)
        view = self._tree.new_view(open_segment(folder, threads=self._threads))
        self._tree.swap(view, folder.name, 0)

    def _merge_at_times(self) -> None:
        if next(self._changes).bit_count() == 1:
            self.merge()
