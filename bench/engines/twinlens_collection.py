"""A collection of twinlens, by itself and down to the engine below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.engines.contender import BATCH, Search
from bench.engines.dataset import Condition, Dataset
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.faiss_library import import_faiss
from twinlens.index.item import Modality, NewItem
from twinlens.index.kinds.kind import Kind
from twinlens.index.options import IndexOptions

SPACE = "bench"
NAME = "photos"


class TwinlensCollection:
    """Items with a caption and metadata, no pictures: what is measured is the database and the index."""

    def __init__(self, folder: Path) -> None:
        import_faiss()  # not part of what a collection takes
        self._folder = folder
        self._catalog: Catalog | None = None
        self._indexed: set[str] = set()

    def store(self, data: Dataset) -> bool:
        """Upserts items; merging goes on in the background, as it does for a user."""
        collection = self._opened(None).create(NAME, space_id=SPACE, dimension=data.vectors.shape[1])
        for batch in _batches(data):
            collection.upsert(batch, space_id=SPACE)
        return True

    def build(self, data: Dataset, kind: str) -> None:  # noqa: ARG002 - it has them
        """Changes the kind and merges."""
        self._opened(None).get(NAME).merge(kind=Kind(kind), wait=True)

    def open(self, threads: int) -> None:
        """Opens the catalog and the collection."""
        self._opened(threads).get(NAME)

    def searches(self) -> dict[str, Search]:
        """Down to items, and down to keys only."""
        collection = self._collection()
        # What bare FAISS is to be compared with: keys and scores, no items. Keys count from 1 in the order of storing.
        engine = collection._state.current().engines[Modality.IMAGE]  # noqa: SLF001

        def hits(queries: NDArray[np.float32], top_k: int) -> Sequence[Sequence[int]]:
            found = collection.search(queries, modality=Modality.IMAGE, top_k=top_k, space_id=SPACE)
            return [[int(hit.item.id) for hit in of_query] for of_query in found]

        def keys(queries: NDArray[np.float32], top_k: int) -> Sequence[Sequence[int]]:
            rows: list[list[int]] = (engine.search(queries, top_k)[1] - 1).tolist()
            return rows

        return {"collection": hits, "engine": keys}

    def search_where(self, query: NDArray[np.float32], top_k: int, condition: Condition) -> Sequence[int] | None:
        """With the condition as a filter."""
        collection = self._collection()
        if condition.field not in self._indexed:  # as one does for what is often asked
            collection.add_metadata_index(condition.field)
            self._indexed.add(condition.field)
        found = collection.search(
            query[None], modality=Modality.IMAGE, top_k=top_k, space_id=SPACE, filter=condition.text
        )
        return [int(hit.item.id) for hit in found[0]]

    def tune(self, data: Dataset, recall: float) -> None:
        """Settings are part of the product."""

    def close(self) -> None:
        """Closes the catalog."""
        if self._catalog is not None:
            self._catalog.close()

    def _opened(self, threads: int | None) -> Catalog:
        if self._catalog is None:
            self._catalog = Catalog(self._folder, options=IndexOptions(threads=threads))
        return self._catalog

    def _collection(self) -> Collection:
        assert self._catalog is not None, "open comes first"
        return self._catalog.get(NAME)


def _batches(data: Dataset) -> Iterator[list[NewItem]]:
    for start in range(0, len(data.vectors), BATCH):
        stop = min(start + BATCH, len(data.vectors))
        yield [
            NewItem(
                id=f"{row:09d}",
                vectors={Modality.IMAGE: data.vectors[row]},
                caption="a photo",
                metadata={"draw": int(data.draw[row]), "cluster": int(data.cluster[row])},
            )
            for row in range(start, stop)
        ]
