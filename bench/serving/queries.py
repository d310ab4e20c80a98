"""Distinct short texts, as people type them into a search box: two to seven words."""

from __future__ import annotations

_HOW = (
    *("old", "red", "small", "black", "yellow", "wet", "broken", "two", "three", "white", "green", "big", "young"),
    *("happy", "blue", "empty", "sleeping", "wooden", "dirty", "tall", "round", "brown", "smiling", "dark"),
)
_WHAT = (
    *("dog", "car", "house", "boat", "bicycle", "woman", "man", "children", "cat", "horse", "bird", "train", "bridge"),
    *("tree", "flower", "chair", "table", "cup", "shoes", "dress", "hat", "bag", "phone", "book", "door", "window"),
    *("bus", "plane", "street", "garden", "church", "tower", "mountain", "river", "cake", "pizza", "football"),
)
_WHERE = (
    *("", "on the beach", "in the snow", "at night", "in a park", "near the station", "under a tree", "by the lake"),
    *("in the rain", "on a table", "from above", "close up", "in the evening light", "in front of a wall", "indoors"),
    *("in black and white", "without people", "on a white background", "seen from the street"),
)
DISTINCT = len(_HOW) * len(_WHAT) * len(_WHERE)


def query(number: int) -> str:
    """The text of a call; so many in a row are different as there are.

    The three numbers of words (24, 37, 19) have no common divisor, so that every combination comes once.
    """
    parts = (words[number % len(words)] for words in (_HOW, _WHAT, _WHERE))
    return " ".join(part for part in parts if part)
