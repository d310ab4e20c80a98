from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.items import SPACE, new_item
from tests.support.oracle import assert_exact
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality
from twinlens.index.kinds.segment import write_segment
from twinlens.index.options import IndexOptions
from twinlens.index.tree import merge

D = 8
LEAST = 20
OPTIONS = IndexOptions(threads=1, least_merged=LEAST)
Model = dict[str, NDArray[np.float32]]


class Room:
    """A collection that merges from 20 vectors on, and a dictionary that is to hold the same."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.catalog = Catalog(root, options=OPTIONS)
        self.collection = self.catalog.create("photos", space_id=SPACE, dimension=D)
        self.model: Model = {}
        self._rng = np.random.default_rng(3)

    def upsert(self, *numbers: int) -> None:
        """Stores items with new vectors."""
        vectors = {f"{number}": self._rng.standard_normal(D).astype(np.float32) for number in numbers}
        self.collection.upsert(
            [new_item(item_id, image_vector=vector) for item_id, vector in vectors.items()], space_id=SPACE
        )
        self.model |= vectors

    def delete(self, *numbers: int) -> None:
        """Removes items."""
        ids = [f"{number}" for number in numbers]
        self.collection.delete(ids)
        for item_id in ids:
            self.model.pop(item_id, None)

    def reopen(self) -> Collection:
        """Restarts."""
        self.catalog.close()
        self.catalog = Catalog(self.root, options=OPTIONS)
        self.collection = self.catalog.get("photos")
        return self.collection

    def check(self) -> None:
        """Compares counts and searches with the dictionary."""
        stats = self.collection.stats()
        assert (stats.items, stats.image_vectors) == (len(self.model), len(self.model))
        of_images = stats.indexes[0]
        assert of_images.merged - of_images.hidden + of_images.pending == len(self.model)
        for query in self._rng.standard_normal((3, D)):
            for top_k in (3, len(self.model) + 1):
                hits = self.collection.search(query[np.newaxis], modality=Modality.IMAGE, top_k=top_k, space_id=SPACE)
                assert_exact(query, self.model, top_k, [(hit.item.id, hit.score) for hit in hits[0]])

    def numbers(self) -> tuple[int, int, int]:
        """Merged, pending and hidden image vectors."""
        state = self.collection.stats().indexes[0]
        return state.merged, state.pending, state.hidden

    @property
    def segments(self) -> list[str]:
        """Names of the folders that there are."""
        folder = self.root / "collections" / "photos" / "indexes"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def rows(self, statement: str) -> list[Any]:
        """Asks the database from outside."""
        with closing(sqlite3.connect(self.root / "collections" / "photos" / "collection.db")) as connection:
            return connection.execute(statement).fetchall()

    @property
    def logged(self) -> int:
        """How many changes the log has."""
        return int(self.rows("SELECT count(*) FROM changes")[0][0])


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path)
    yield made
    made.catalog.close()


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for the background to bring something about."""
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s, "this never came about"
        time.sleep(0.002)


class Halt:
    """Holds every merge at the point where it writes its segment until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.folders: list[Path] = []
        self._write = write_segment

    def write(self, folder: Path, *given: Any, stop: Callable[[], bool], **options: Mapping[str, Any]) -> None:
        """Stands in for `write_segment`."""
        self.folders.append(folder)
        self.reached.set()
        while not self.go_on.wait(0.005) and not stop():
            pass
        self._write(folder, *given, stop=stop, **options)  # type: ignore[arg-type]


@pytest.fixture
def halt(monkeypatch: pytest.MonkeyPatch) -> Halt:
    made = Halt()
    monkeypatch.setattr(merge, "write_segment", made.write)
    return made
