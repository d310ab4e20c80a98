"""A collection with numbers in its metadata, and which of its items a search by filter finds."""

from __future__ import annotations

import numpy as np

from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.collection import Collection
from twinlens.index.item import Modality


def fill(collection: Collection, count: int = 40) -> None:
    """Stores items 000, 001 … with `n` from 0 and whether it is `odd`."""
    rng = np.random.default_rng(6)
    collection.upsert(
        [
            new_item(f"{i:03}", image_vector=rng.normal(size=DIMENSION), metadata={"n": i, "odd": i % 2 == 1})
            for i in range(count)
        ],
        space_id=SPACE,
    )


def search(collection: Collection, text: str, top_k: int = 100) -> list[str]:
    """Ids of the hits, best first."""
    (hits,) = collection.search(axis(0)[np.newaxis], modality=Modality.IMAGE, top_k=top_k, space_id=SPACE, filter=text)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return [hit.item.id for hit in hits]
