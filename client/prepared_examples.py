"""Examples whose pictures are embedded, ready to be sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from twinlens.client.types import ExampleError
from twinlens.v1 import classification_pb2


@dataclass(frozen=True, slots=True)
class PreparedExamples:
    """What `prepare_examples` makes and `classify` takes, as often as you like.

    Attributes:
        errors: The pictures that could not be used, in order.
        used: How many examples there are, not counting those of a whole collection.
        labels: How many labels there are at most.
        size_bytes: How much of a message they take.
    """

    errors: tuple[ExampleError, ...]
    used: int
    labels: int
    size_bytes: int
    wire: classification_pb2.ExampleSet = field(repr=False)
