"""A `VectorIndex` like a log-structured merge tree: one merged index, fresh vectors beside it, and what is hidden."""

from __future__ import annotations

import threading

import numpy as np

from twinlens.index.errors import CollectionError
from twinlens.index.flat import FlatIndex
from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.main_index import MainIndex
from twinlens.index.protocol import Keys, Vectors
from twinlens.index.search_threads import SearchThreads
from twinlens.index.stats import IndexState, LastMerge
from twinlens.index.tree.policy import Numbers
from twinlens.index.tree.view import View


class TreeIndex:
    """Vectors of one generation and modality. Searches never wait for a merge, nor for a write to the merged part.

    Attributes:
        dimension: Length of the vectors.
        entries: How many changes were applied since the merged part was made.
        token: Names the folder of the merged part; empty where there is none.
        asked: The kind that the merged part was built for; None where another process built it.
        merging: A merge is running.
        last_merge: How the last one went.
        merge_ended_s: When it ended, by the monotonic clock.
    """

    def __init__(self, dimension: int, threads: SearchThreads) -> None:
        """Makes an empty one.

        Raises:
            EngineUnavailable: FAISS is not installed.
        """
        self.dimension = dimension
        self.entries = 0
        self.token = ""
        self.asked: Kind | None = None
        self.merging = False
        self.last_merge = LastMerge()
        self.merge_ended_s: float | None = None
        self._threads = threads
        self._changing = threading.Lock()
        self._view: View | None = self.new_view(None)
        self._count = 0

    def __len__(self) -> int:
        """How many vectors it holds."""
        return self._count

    @property
    def merged(self) -> int:
        """How many vectors are merged, with those replaced or deleted since."""
        return self._open().merged

    @property
    def kind(self) -> Kind:
        """What lies over the merged vectors; `flat` where there are none."""
        main = self._open().main
        return Kind.FLAT if main is None else main.kind

    @property
    def memory_bytes(self) -> int:
        """What it keeps in memory, without files that are only mapped."""
        view = self._open()
        fresh = len(view.delta) * self.dimension * np.dtype(np.float32).itemsize
        return fresh if view.main is None else fresh + view.main.memory_bytes

    def upsert(self, keys: Keys, vectors: Vectors) -> None:
        """Adds vectors or replaces those of keys already there, as `VectorIndex.upsert`."""
        with self._changing:
            view = self._open()
            view.upsert(keys, vectors)
            self._note(view, len(keys))

    def delete(self, keys: Keys) -> None:
        """Removes keys; unknown ones are ignored."""
        with self._changing:
            view = self._open()
            view.delete(keys)
            self._note(view, len(keys))

    def search(
        self, queries: Vectors, top_k: int, *, exact: bool = False, among: Keys | None = None
    ) -> tuple[Vectors, Keys]:
        """As `VectorIndex.search`."""
        while True:
            view = self._open()
            with view.reading() as open_:
                if open_:
                    return view.search(queries, top_k, exact=exact, among=among)

    def keys(self) -> Keys:
        """The keys that can be found, ascending."""
        with self._changing:
            view = self._open()
            fresh = view.delta.keys()
            if view.main is None:
                return fresh
            shown = view.main.keys if view.shown is None else view.main.keys[view.shown]
            found: Keys = np.sort(np.concatenate([shown, fresh]))
            return found

    def state(self, modality: Modality) -> IndexState:
        """What it says about itself."""
        view = self._open()
        return IndexState(
            modality=modality,
            kind=self.kind,
            merged=view.merged,
            pending=len(view.delta),
            hidden=view.hidden,
            memory_bytes=self.memory_bytes,
            merging=self.merging,
            last_merge=self.last_merge,
        )

    def numbers(self) -> Numbers | None:
        """What decides when it is merged; None once closed."""
        view = self._view
        if view is None:
            return None
        kind = Kind.FLAT if view.main is None else view.main.kind
        return Numbers(view.merged, len(view.delta), view.hidden, self.entries, kind)

    def new_view(self, main: MainIndex | None) -> View:
        """A view with nothing fresh in it, to be filled and then swapped in."""
        return View(main, FlatIndex(self.dimension, threads=self._threads))

    def swap(self, view: View, token: str, entries: int) -> None:
        """Lets searches that begin from now on see another view; those that run keep theirs to their end.

        Args:
            view: Holds all that was committed.
            token: Of its main.
            entries: How many changes it holds beyond its main.
        """
        with self._changing:
            before = self._open()
            self._view, self.token, self.entries = view, token, 0
            self._note(view, entries)
        before.retire()

    def close(self) -> None:
        """Frees the memory."""
        with self._changing:
            view, self._view, self._count = self._view, None, 0
        if view is not None:
            view.retire()

    def _note(self, view: View, entries: int) -> None:
        self.entries += entries
        self._count = view.merged - view.hidden + len(view.delta)

    def _open(self) -> View:
        view = self._view
        if view is None:
            raise CollectionError("this vector index is closed")
        return view
