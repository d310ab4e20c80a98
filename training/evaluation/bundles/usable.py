"""What of a set can be measured: which towers it needs, what was left out, and when that is too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from twinlens.training.data.listed_pictures import Picture
from twinlens.training.data.unusable import refuse_too_many
from twinlens.training.errors import ConfigError
from twinlens.training.evaluation.bundles.config import SetSection
from twinlens.training.evaluation.bundles.embedder import EvaluatedModel
from twinlens.training.evaluation.bundles.vectors_once import VectorsOnce

SHARE_KEY = "max_unreadable_share (--max-unreadable-share)"

T = TypeVar("T")

_SHOWN = 80
# The towers round what comes in different batches differently, by less than this.
_SAME_DIGITS = 5


def need_towers(model: EvaluatedModel, path: Path, *, text: bool) -> None:
    """Refuses a model that lacks a tower.

    Args:
        model: Who is to be measured.
        path: On what.
        text: Whether texts are needed besides pictures.

    Raises:
        ConfigError: saying what can be measured on it.
    """
    whose = f"{model.name}/{model.version}"
    if not model.has_image_tower:
        raise ConfigError(f"{whose} has no image tower, which {path} needs")
    if text and not model.has_text_tower:
        instead = "--labels can be measured on it, by nearest neighbours"
        raise ConfigError(f"{whose} has no text tower, which {path} needs; {instead}")


def set_name(section: SetSection) -> str:
    """What a set is called: its name, or the folder it lies in."""
    if section.name:
        return section.name
    whole = section.path.absolute()
    return whole.name if whole.is_dir() else whole.parent.name


def shown_text(text: str) -> str:
    """A text as an error names it."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")


def taken(items: Sequence[T], limit: int | None) -> list[T]:
    """At most `limit` of them, evenly spread, so that sorted ones stay mixed."""
    if limit is None or limit >= len(items):
        return list(items)
    return [items[row * len(items) // limit] for row in range(limit)]


def limited(section: SetSection) -> list[str]:
    """A note on a set of which only a part is looked at: figures of parts of different sizes are not comparable."""
    return [] if section.limit is None else [f"at most {section.limit:,} were taken, evenly spread over all (limit)"]


@dataclass
class Usable:
    """Collects what cannot be used of one set.

    Attributes:
        vectors: Of the run.
        max_share: So much may be unusable.
        problems: What was left out, and why.
        notes: Lines for people.
    """

    vectors: VectorsOnce
    max_share: float
    problems: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def images(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        """Vectors of pictures; rows of NaN where there is none.

        Raises:
            DataError: if too many cannot be used.
        """
        found = self.vectors.images(pictures)
        bad = {pictures[row].name: reason for row, reason in found.problems.items()}
        refuse_too_many(bad, len({each.name for each in pictures}), max_share=self.max_share, key=SHARE_KEY)
        self.problems.update(bad)
        return found.rows

    def texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts; rows of NaN where there is none.

        Raises:
            DataError: if too many cannot be used.
        """
        found = self.vectors.texts(texts)
        bad = {shown_text(texts[row]): reason for row, reason in found.problems.items()}
        different = len(set(texts))
        refuse_too_many(bad, different, max_share=self.max_share, key=SHARE_KEY, what="texts")
        self.problems.update(bad)
        cut = len({texts[row] for row in found.truncated})
        if cut:
            self.notes.append(f"{cut:,} of {different:,} texts are longer than the model reads and were cut")
        return found.rows

    def first_problem(self) -> str:
        """The end of a message on what is left of the set; empty where nothing was left out."""
        first = next(iter(self.problems.items()), None)
        return "" if first is None else f"; the first of {len(self.problems)} left out is {first[0]}: {first[1]}"


def with_vectors(*rows_nd: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which rows have a vector in every one of some arrays, each of shape (n, d) or (n, k, d)."""
    usable = [np.isfinite(rows.reshape(len(rows), -1)).all(axis=1) for rows in rows_nd]
    return np.asarray(np.logical_and.reduce(usable))


def twins(vector_nd: NDArray[np.floating]) -> int:
    """How many vectors are those of an earlier row, but for rounding: of a copy of a picture, or of Cat and cat."""
    return len(vector_nd) - len(np.unique(np.round(vector_nd, _SAME_DIGITS), axis=0))
