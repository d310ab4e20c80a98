"""What goes into a stream of inputs to embed, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from twinlens.client.types import ImageInput, ItemError, ModelInfo, StoredItem


@dataclass(frozen=True, slots=True)
class TextInput:
    """A text to embed, among inputs of which plain texts are paths of pictures.

    Example:
        >>> [each.vector.shape for each in client.embed_stream([TextInput("a cat"), "cat.jpg"])]
        [(384,), (384,)]
    """

    text: str


EmbedInput: TypeAlias = "ImageInput | TextInput | StoredItem"


@dataclass(frozen=True, slots=True)
class Embedding:
    """What became of one input of a stream.

    Attributes:
        vector: Unit-length vector, float32, shape (d,); None where the input failed.
        error: Why it failed.
        truncated: The text was longer than the model's context and was cut.
        model: The model; None where the input could not even be sent.
    """

    vector: NDArray[np.float32] | None
    error: ItemError | None = None
    truncated: bool = False
    model: ModelInfo | None = None
