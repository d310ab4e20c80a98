"""Embeds each picture and each text once, however many sets it is in."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.progress import progress_on_stderr
from twinlens.training.data.listed_pictures import ListedPicture, Picture
from twinlens.training.evaluation.bundles.embedder import Embedder, EvaluatedModel, OnDone, Vectors

Item = TypeVar("Item")


class VectorsOnce:
    """Keeps every vector of one run, and shows on stderr how far the embedding is."""

    def __init__(self, embedder: Embedder) -> None:
        """Wraps what embeds."""
        self._embedder = embedder
        self._images: dict[Hashable, _Kept] = {}
        self._texts: dict[Hashable, _Kept] = {}

    @property
    def model(self) -> EvaluatedModel:
        """Who embeds."""
        return self._embedder.model

    def images(self, pictures: Sequence[Picture]) -> Vectors:
        """Vectors of pictures, in their order; a picture may come several times."""
        return self._vectors("pictures", pictures, _key, self._images, self._embedder.images)

    def texts(self, texts: Sequence[str]) -> Vectors:
        """Vectors of texts, in their order; a text may come several times."""
        return self._vectors("texts", texts, _itself, self._texts, self._embedder.texts)

    def _vectors(
        self,
        what: str,
        items: Sequence[Item],
        key: Callable[[Item], Hashable],
        kept: dict[Hashable, _Kept],
        embed: Callable[[Sequence[Item], OnDone], Vectors],
    ) -> Vectors:
        fresh = {key(item): item for item in items if key(item) not in kept}
        if fresh:
            with progress_on_stderr(f"embedding {what}", len(fresh)) as progress:
                found = embed(list(fresh.values()), lambda failed: progress.advance(failed=failed))
            for position, each in enumerate(fresh):
                problem = found.problems.get(position)
                kept[each] = _Kept(found.rows[position], problem, position in found.truncated)
        of = [kept[key(item)] for item in items]
        rows = np.stack([each.row for each in of]) if of else np.zeros((0, self.model.dimension), dtype=np.float32)
        problems = {position: each.problem for position, each in enumerate(of) if each.problem is not None}
        return Vectors(rows, problems, frozenset(position for position, each in enumerate(of) if each.truncated))


@dataclass(frozen=True, slots=True)
class _Kept:
    row: NDArray[np.float32]
    problem: str | None
    truncated: bool


def _key(picture: Picture) -> tuple[object, ...]:
    if not isinstance(picture, ListedPicture):
        return (picture,)
    # Sets give a file different names and labels.
    # Pictures that came as bytes with a table have the table as their file, and differ by name.
    return picture.file, picture.offset, picture.name if picture.data is not None else ""


def _itself(text: str) -> Hashable:
    return text
