"""What the parser trips over, in words that say what to write instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from twinlens.index.filters.errors import InvalidFilter, shown
from twinlens.index.filters.fields import OWN

if TYPE_CHECKING:
    from lark.exceptions import UnexpectedInput

VALUES = "a value: a text in quotes, a number, true, false, null or a time such as 2024-05-01T09:30:00Z"
_EXAMPLE = 'a condition such as tag = "cat"'
_QUOTES = {'"', "'"}
_COMPARATORS = "= != < <= > >= or :"
_ALONE = re.compile(r"""\s*("([^"\\*]+)"|[^\s"'\\*]+)\s*""")


def explained(error: UnexpectedInput, text: str) -> InvalidFilter:
    """The error to show for what the parser raised on a filter."""
    position = _position(error, text)
    rest = text[position:].lstrip()
    position = len(text) - len(rest) if rest else len(text.rstrip())
    if rest[:1] in _QUOTES and not _closed(rest):
        return InvalidFilter(position, f"the quote {rest[0]} is never closed")
    return InvalidFilter(position, f"expected {_wanted(_accepted(error), text, position)}, found {_found(rest)}")


def _wanted(accepted: frozenset[str], text: str, position: int) -> str:
    before, rest = text[:position].split()[-1:], text[position:]
    if "WORD" in accepted:
        hint = " (equality is a single =)" if rest.startswith("=") else ""
        return VALUES + hint
    if "COMPARATOR" in accepted:
        word = before[0] if before else ""
        for each in (word, *rest.split()[:1]):
            if each in {"and", "or", "not"}:
                return f"a comparison ({each.upper()} is written in capitals)"
        after = shown(word.strip("\"'"))
        return f"{_COMPARATORS} after {after} ({_about_words(text)})"
    if accepted & {"AND", "CLOSE", "$END"}:
        if rest.startswith(")"):
            return 'AND, OR or the end: there is no "(" for this'
        return 'AND, OR or ")"' if "CLOSE" in accepted else "AND, OR or the end"
    if "OPEN" in accepted:
        return _EXAMPLE
    return "a name, or one in quotes"


def _about_words(text: str) -> str:
    """What is meant where a comparator is missing: words to look for, if there is nothing else, or a longer value."""
    alone = _ALONE.fullmatch(text)
    if alone is None or alone[1] in OWN:
        return "values of several words need quotes"
    return f"in captions it is looked for by caption = {shown(f'*{alone[2] or alone[1]}*')}"


def _found(rest: str) -> str:
    if not rest:
        return "the end"
    word = rest.split(maxsplit=1)[0]
    return shown(word if word[0].isalnum() else word[0])


def _accepted(error: UnexpectedInput) -> frozenset[str]:
    """Names of the terminals that could have stood there."""
    state: Any = error.interactive_parser  # both kinds of error that this parser raises have it
    return frozenset(state.accepts())


def _position(error: UnexpectedInput, text: str) -> int:
    token: Any = getattr(error, "token", None)
    if token is None:
        return int(getattr(error, "pos_in_stream", None) or 0)
    return len(text) if token.type == "$END" else int(token.start_pos)


def _closed(rest: str) -> bool:
    escaped = False
    for character in rest[1:]:
        if character == rest[0] and not escaped:
            return True
        escaped = character == "\\" and not escaped
    return False
