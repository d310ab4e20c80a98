"""Text of others on its way to a terminal or a log: names of files, messages about them."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text on one line, with what would move the cursor, change colours or turn the reading direction escaped.

    Example:
        >>> printable("\x1b[31mred.png")
        '\\x1b[31mred.png'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
