"""Text of others on its way to a terminal or a log: names of files, messages about them."""

from __future__ import annotations

import json
from collections.abc import Callable


def printable(text: str) -> str:
    r"""The text on one line, with what would move the cursor, change colours or turn the reading direction escaped.

    Example:
        >>> printable("\x1b[31mred.png")
        '\\x1b[31mred.png'
    """
    return _escaped(text, lambda each: each.encode("unicode_escape").decode("ascii"))


def printable_json(text: str) -> str:
    r"""JSON with the same characters escaped, in JSON's own way: whoever parses it finds them again.

    Example:
        >>> printable_json('"gpj.\u202eexe"')
        '"gpj.\\u202eexe"'
    """
    return "\n".join(_escaped(line, lambda each: json.dumps(each)[1:-1]) for line in text.split("\n"))


def _escaped(line: str, escape: Callable[[str], str]) -> str:
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else escape(each) for each in line)
