"""Items for tests of collections."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index.item import Modality, NewItem

DIMENSION = 8
SPACE = "space-one"


def axis(number: int, dimension: int = DIMENSION) -> NDArray[np.float32]:
    """A unit vector along one axis, shape (dimension,)."""
    vector = np.zeros(dimension, dtype=np.float32)
    vector[number] = 1
    return vector


def new_item(item_id: str, *, image_vector: Any = None, text_vector: Any = None, **fields: Any) -> NewItem:
    """An item with the vectors that are given; without any, an image vector along the first axis."""
    if image_vector is None and text_vector is None:
        image_vector = axis(0)
    given = {Modality.IMAGE: image_vector, Modality.TEXT: text_vector}
    return NewItem(item_id, {modality: vector for modality, vector in given.items() if vector is not None}, **fields)
