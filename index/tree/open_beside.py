"""Opening a generation while another one serves, and bringing it to what was written meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from twinlens.index.generations import Generation, LoadedGeneration
from twinlens.index.load import load_generation
from twinlens.index.state import CollectionState
from twinlens.index.tree.catch_up import catch_up
from twinlens.index.tree.changes import changed_since, is_logged, newest_change


class OpenedBeside:
    """A generation that is about to become the active one.

    Its segments are read while writers go on, who then wait only for what changed since. Where changes are not logged,
    because it has no segments, it is opened at the end: then it has few vectors, or another engine than FAISS.
    """

    def __init__(self, state: CollectionState, generation: Generation) -> None:
        """Opens it; the segments it is to have are there.

        Raises:
            CorruptCollection: a vector in the database is damaged.
        """
        self._state = state
        self._generation = generation
        self._loaded: LoadedGeneration | None = None
        with state.database.read() as connection:
            self._through = newest_change(connection)
            if is_logged(connection, generation.number):
                self._loaded = load_generation(
                    connection, generation, state.engines, folder=state.segments, name=state.name
                )

    def catch_up(self) -> None:
        """Takes over most of what was written while it was opened, so that `finish` has little to do."""
        if self._loaded is not None:
            with self._state.database.read() as connection:
                self._follow(connection, self._loaded)

    def finish(self) -> tuple[LoadedGeneration, Sequence[int] | None]:
        """Takes over the rest. Callers hold `writing`, and go on holding it until searches see it.

        Returns:
            It, and the keys of the items written since `catch_up` began; None where they are not known.
        """
        if self._loaded is None:
            return self._state.load(self._generation), None
        with self._state.database.read() as connection:
            return self._loaded, self._follow(connection, self._loaded)

    def close(self) -> None:
        """Frees the memory, where it does not become the active one after all."""
        if self._loaded is not None:
            for engine in self._loaded.engines.values():
                engine.close()

    def _follow(self, connection: sqlite3.Connection, loaded: LoadedGeneration) -> Sequence[int]:
        _, items = changed_since(connection, self._through)
        newest = newest_change(connection)
        for modality, tree in loaded.trees.items():
            catch_up(connection, tree, self._generation, modality, self._through, self._state.name)
        self._through = newest
        return items


@contextmanager
def opened_beside(state: CollectionState, generation: Generation) -> Iterator[OpenedBeside]:
    """Opens a generation; should the block fail, it is closed again."""
    opened = OpenedBeside(state, generation)
    try:
        yield opened
    except BaseException:
        opened.close()
        raise
