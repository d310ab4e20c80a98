"""How much of an over-long text is read, so that what is kept of it comes out as if all had been read."""

from __future__ import annotations

import re

# ftfy looks at one line at a time, and at this many characters of a line at once.
_SEGMENT = 1_000_000
# Where a word may be cut, it is read this far beyond the window.
_WORD = 64 * 1024
_SPACE = re.compile(r"\s")


def raw_end(text: str, window: int) -> int:
    """Where to stop reading a text before its clean-up: after the line in which the window ends.

    Whether a line is mojibake depends on all of the line; no clean-up looks beyond it.
    """
    if len(text) <= window:
        return len(text)
    end = text.find("\n", window - 1) + 1 or len(text)
    start = text.rfind("\n", 0, window - 1) + 1
    segments = -(-(window - start) // _SEGMENT)
    return min(end, start + segments * _SEGMENT)


def word_end(cleaned: str, window: int, *, whole_words: bool) -> int:
    """Where to stop reading a cleaned text: after the word in which the window ends.

    Args:
        cleaned: The text after its clean-up.
        window: Characters to read at least.
        whole_words: A word of any length is read to its end. Byte-pair merges depend on their near neighbours only, but
            the best split of a unigram model may depend on whether a million letters are even or odd in number.
    """
    if len(cleaned) <= window:
        return len(cleaned)
    space = _SPACE.search(cleaned, window)
    end = len(cleaned) if space is None else space.start()
    return end if whole_words else min(end, window + _WORD)
