"""Items and hits, as the index room hands them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Modality(StrEnum):
    """Which vectors of an item are meant."""

    IMAGE = "image"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to store, already embedded.

    Attributes:
        id: Chosen by the user; empty means the content hash.
        image: The original's bytes, kept in the blob folder; None where the item has no picture.
        caption: Free text, may be empty.
        vectors: Per modality the float vector, shape (d,); normalised on storing.
        uri: Where the original lies, as the user gave it.
        metadata: JSON-compatible mapping.
    """

    id: str
    vectors: Mapping[Modality, NDArray[np.floating[Any]]]
    image: bytes | None = None
    caption: str = ""
    uri: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item:
    """A stored item. Times are seconds since the epoch, UTC."""

    id: str
    uri: str
    caption: str
    metadata: Mapping[str, Any]
    content_hash: str
    has_image: bool
    created_s: float
    updated_s: float


@dataclass(frozen=True, slots=True)
class Hit:
    """An item and its cosine to the query, from -1 to 1."""

    item: Item
    score: float
