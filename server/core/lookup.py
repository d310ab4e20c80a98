"""Vectors that a caller brings or that an item has, instead of something to embed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.index.contract import CollectionLike
from twinlens.index.errors import InvalidArgument, ItemNotFound
from twinlens.index.item import Modality
from twinlens.server.core.engine import Outcome
from twinlens.server.core.errors import ItemFailure, Reason


@dataclass(frozen=True, slots=True)
class RawVector:
    """A vector of the collection's space, shape (d,), any length but zero."""

    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item's own vector; `modality` None: the picture's, or the caption's where there is no picture."""

    id: str
    modality: Modality | None


def item_vector(collection: CollectionLike, item: StoredItem, dimension: int) -> Outcome:
    """The unit vector of a stored item, or why there is none. Blocks."""
    if not item.id:
        return refused(Reason.INVALID_INPUT, "an item_id is empty")
    wanted = [item.modality] if item.modality else [Modality.IMAGE, Modality.TEXT]
    for modality in wanted:
        try:
            vector = collection.get_vector(item.id, modality)
        except InvalidArgument as error:  # an id that no item can have
            return refused(Reason.INVALID_INPUT, str(error))
        except ItemNotFound as error:
            outcome = refused(Reason.NOT_FOUND, str(error))
        else:
            return unit_vector(vector, dimension)
    return outcome


def unit_vector(values: NDArray[np.float32], dimension: int) -> Outcome:
    """A caller's vector at length one, or why it cannot be used."""
    if values.shape != (dimension,):
        return refused(
            Reason.INVALID_VECTOR, f"the vector has {values.size} values; the model's vectors have {dimension}"
        )
    if not np.isfinite(values).all():
        return refused(Reason.INVALID_VECTOR, "the vector holds a value that is not finite")
    wide = values.astype(np.float64)
    norm = float(np.linalg.norm(wide))
    if norm == 0:
        return refused(Reason.INVALID_VECTOR, "the vector is zero and points nowhere")
    return Outcome(vector=(wide / norm).astype(np.float32))


def refused(reason: Reason, message: str) -> Outcome:
    """No vector, and why."""
    return Outcome(failure=ItemFailure(reason, message))
