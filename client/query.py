"""Puts a query together from what a caller gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.client.types import ImageInput, Part


def mix(
    *,
    text: str | None = None,
    image: ImageInput | None = None,
    vector: NDArray[np.floating[Any]] | Sequence[float] | None = None,
    item: str | None = None,
    parts: Sequence[Part] = (),
) -> list[Part]:
    """Everything that was given as parts of one query, those without a weight at weight 1."""
    query = []
    if text is not None:
        query.append(Part(text=text))
    if image is not None:
        query.append(Part(image=image))
    if vector is not None:
        query.append(Part(vector=vector))
    if item is not None:
        query.append(Part(item=item))
    return [*query, *parts]
