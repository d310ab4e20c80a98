"""Distinct short texts, as people type them into a search box."""

from __future__ import annotations

_WHO = ("a dog", "two children", "an old man", "a red car", "a small boat", "three birds", "a woman", "a black cat")
_DOES = ("running", "asleep", "waiting", "in the rain", "seen from above", "close up", "at night", "out of focus")
_WHERE = ("on the beach", "in a park", "near the station", "under a tree", "by the lake", "in the snow", "on a street")
_MORE = ("", "", "with a yellow umbrella", "in black and white", "in the evening light", "without people")


def query(number: int) -> str:
    """The text of a call: 8 to 16 tokens, most of the first thousands different."""
    who = _WHO[number % len(_WHO)]
    does = _DOES[number // len(_WHO) % len(_DOES)]
    where = _WHERE[number % len(_WHERE)]
    more = _MORE[number // 3 % len(_MORE)]
    return " ".join(part for part in (who, does, where, more, str(number)) if part)
