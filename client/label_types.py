"""What labels are chosen from by name, and when none of them fits."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class NoneOfThese:
    """When a picture shows none of the labels. Each that is set must hold for a label to fit; no score is hidden.

    Attributes:
        min_cosine: A label fits from this cosine on, -1 to 1.
        min_probability: A label fits from this probability on, 0 to 1.
        background: Whole prompts that say what else a picture may show. They compete with the labels: a label fits only
            where its cosine is higher than that of each of them.

    Example:
        >>> none = NoneOfThese(min_cosine=0.2, background=["a blurred photo", "a page of text"])
        >>> (result,) = client.classify(["cat.jpg"], ["cat", "dog"], none_of_these=none)
        >>> result.none_of_these
        False
    """

    min_cosine: float | None = None
    min_probability: float | None = None
    background: tuple[str, ...] | list[str] = ()


@dataclass(frozen=True, slots=True)
class LabelSet:
    """Labels and how to ask for them, kept by the server under a name.

    Attributes:
        id: Its name.
        labels: To choose from.
        templates: Prompts around a label; none: the server's default.
        multi_label: Each label is judged on its own.
        none_of_these: When no label fits.
        create_time: When it was first put.
        update_time: When it was last put.
    """

    id: str
    labels: tuple[str, ...] = field(repr=False)
    templates: tuple[str, ...]
    multi_label: bool
    none_of_these: NoneOfThese
    create_time: datetime
    update_time: datetime
