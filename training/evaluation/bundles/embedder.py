"""What an evaluation asks of a model, wherever it runs: vectors of pictures and of texts, and who it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from twinlens.training.data.listed_pictures import Picture

# Told of each item done, and whether it failed.
OnDone = Callable[[bool], None]
# What became of one item: its vector and whether it was cut, or why there is none.
Outcome = tuple[NDArray[np.float32], bool] | str


@dataclass(frozen=True)
class EvaluatedModel:
    """Who is measured.

    Attributes:
        name: Of the bundle.
        version: Of the bundle.
        space_id: Vectors are comparable only within one.
        dimension: Length of a vector.
        has_image_tower: Whether it embeds pictures.
        has_text_tower: Whether it embeds texts.
        computed_by: Such as `image fp32 on cpu, text fp32 on cpu`, or the address of a server.
    """

    name: str
    version: str
    space_id: str
    dimension: int
    has_image_tower: bool
    has_text_tower: bool
    computed_by: str


@dataclass(frozen=True)
class Vectors:
    """Vectors of a list.

    Attributes:
        rows: Unit vectors, float32, shape (n, d); NaN where there is none.
        problems: Position to why there is none.
        truncated: Positions of texts that were longer than the model reads and were cut.
    """

    rows: NDArray[np.float32]
    problems: Mapping[int, str]
    truncated: frozenset[int]


class Embedder(Protocol):
    """Embeds lists; an item that cannot be embedded fails alone."""

    @property
    def model(self) -> EvaluatedModel:
        """Who embeds."""
        ...

    def images(self, pictures: Sequence[Picture], done: OnDone) -> Vectors:
        """Vectors of pictures, in their order."""
        ...

    def texts(self, texts: Sequence[str], done: OnDone) -> Vectors:
        """Vectors of texts, in their order."""
        ...


def gathered(outcomes: Iterable[Outcome], count: int, dimension: int, done: OnDone) -> Vectors:
    """Puts what became of `count` items together.

    Args:
        outcomes: In order.
        count: How many there will be.
        dimension: Of a vector.
        done: Told of each.
    """
    rows = np.full((count, dimension), np.nan, dtype=np.float32)
    problems: dict[int, str] = {}
    truncated = set()
    for position, outcome in enumerate(outcomes):
        if isinstance(outcome, str):
            problems[position] = outcome
        else:
            rows[position] = outcome[0]
            if outcome[1]:
                truncated.add(position)
        done(isinstance(outcome, str))
    return Vectors(rows, problems, frozenset(truncated))


def read_picture(picture: Picture) -> bytes | str:
    """The bytes of a picture, or why there are none."""
    try:
        return picture.read()
    except FileNotFoundError:
        return "the file does not exist"
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        return f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
