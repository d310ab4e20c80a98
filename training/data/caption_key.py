"""When two captions say the same, or one says all of the other."""

from __future__ import annotations

import re
from functools import lru_cache


def caption_key(caption: str) -> str:
    """Captions of one key say the same: case, white space and final punctuation do not count."""
    return re.sub(r"\s+", " ", caption.casefold()).strip().rstrip(".!")


def contains(longer: str, shorter: str) -> bool:
    """Whether all words of `shorter` stand in `longer`, side by side: a picture of the one is one of the other.

    "a dog on a beach" contains "a dog". A caption without words is contained in none.
    """
    words = _words(shorter)
    return bool(words) and f" {words} " in f" {_words(longer)} "


@lru_cache(maxsize=1 << 16)
def _words(caption: str) -> str:
    return " ".join(re.findall(r"\w+", caption.casefold()))
