"""Going through the active vectors of a collection, with a column of the items they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twinlens.index import stored_vectors
from twinlens.index.item import Modality
from twinlens.index.paging import check_limit
from twinlens.index.prepare import check_modality
from twinlens.index.state import CollectionState


def vector_pages(
    state: CollectionState, modality: Modality, batch: int, column: Literal["id", "metadata"]
) -> Iterator[tuple[Sequence[str], NDArray[np.float32]]]:
    """Pages of at most `batch` vectors in the order in which their items were first stored.

    Items stored or deleted meanwhile may or may not be among them. The generation is the one active at the start.

    Yields:
        The items' ids, or their metadata as JSON, and an array of shape (n, d).
    """
    kind, limit = check_modality(modality), check_limit(batch)
    with state.use():
        generation = state.current().generation
    after = 0
    while True:
        with state.use(), state.database.read() as connection:
            rows = stored_vectors.page_of_vectors(connection, generation.number, kind, after, limit, column)
        if not rows:
            return
        keys, texts, blobs = zip(*rows, strict=True)
        yield texts, stored_vectors.decode_vectors(keys, blobs, generation.dimension, state.name)
        after = keys[-1]
