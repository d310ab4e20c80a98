"""Varied sentences for calibrating a text tower where the user names no texts of their own."""

from __future__ import annotations

import random
from typing import Final

_SUBJECTS: Final = (
    "a dog", "two children", "an old man", "the red car", "a cat", "three birds", "a young woman", "my bicycle",
    "a crowded train", "the lighthouse", "a bowl of soup", "several boats", "a football player", "the wooden table",
    "an empty street", "a black horse", "the mountain", "a group of tourists", "a white dress", "the kitchen",
)  # fmt: skip
_DOINGS: Final = (
    "running across", "sitting on", "waiting near", "looking at", "covered in", "next to", "in front of",
    "jumping over", "painted like", "reflected in", "behind", "without", "surrounded by", "flying above",
)  # fmt: skip
_PLACES: Final = (
    "the beach", "a snowy field", "the city at night", "green grass", "a glass window", "the river", "a stone wall",
    "an airport hall", "autumn leaves", "the stage", "a blue sky", "a market in Zürich", "the garden", "a hospital",
)  # fmt: skip
_FORMS: Final = (
    "{0} {1} {2}", "a photo of {0}", "{0} {1} {2}, close-up, black and white", "Where is {0}?",
    "A blurry picture that shows {0} {1} {2} while {3} is {1} {4}.", "{2}", "{0} and {3}", "NOT {0} but {3} ({2})",
    "{0}, {3}, {2}: 12 prints", "Breaking news: {0} seen {1} {2} on Monday, according to {3}",
)  # fmt: skip


def varied_sentences(count: int) -> list[str]:
    """Distinct sentences of many lengths, the same ones every time."""
    chance = random.Random(20260101)  # noqa: S311 - not for secrets
    made: dict[str, None] = {}
    while len(made) < count:
        a, b = chance.sample(_SUBJECTS, 2)
        c, d = chance.sample(_PLACES, 2)
        made[chance.choice(_FORMS).format(a, chance.choice(_DOINGS), c, b, d)] = None
    return list(made)
