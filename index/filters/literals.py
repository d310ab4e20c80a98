"""Values as they are written in a filter."""

from __future__ import annotations

import re

from twinlens.index.filters.ast import Anything, Boolean, Null, Number, Text, Time, Value
from twinlens.index.filters.errors import InvalidFilter, shown
from twinlens.index.filters.times import microseconds

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\", "*": "*"}
_HEX = re.compile(r"[0-9a-fA-F]{4}", re.ASCII)
_STAR = "\0"  # stands for an asterisk that is a wildcard: filters hold no NUL


def typed(written: str, position: int, *, wildcards: bool = True) -> Value:
    """The value of a word or a quoted text, as metadata, which has no declared types, sees it.

    Args:
        written: As it stands in the filter.
        position: Where it begins there.
        wildcards: Whether asterisks at the ends of a text stand for more text.

    Raises:
        InvalidFilter: an escape is not one, or a number has no value.
    """
    if written[0] in {'"', "'"}:
        decoded = _unquoted(written, position)
        moment = microseconds(decoded, date_alone=False)
        return Time(moment, decoded) if moment is not None else _text(decoded, wildcards)
    if written == "*":
        return Anything()
    if written in {"true", "false"}:
        return Boolean(written == "true")
    if written == "null":
        return Null()
    if _NUMBER.fullmatch(written):
        return _number(written, position)
    moment = microseconds(written, date_alone=False)
    return Time(moment, written) if moment is not None else _text(written.replace("*", _STAR), wildcards)


def text(written: str, position: int, *, wildcards: bool = True) -> Text:
    """The value of a word or a quoted text where only a text can be meant; as `typed`.

    Raises:
        InvalidFilter: an escape is not one.
    """
    quoted = written[0] in {'"', "'"}
    return _text(_unquoted(written, position) if quoted else written.replace("*", _STAR), wildcards)


def name(written: str, position: int) -> str:
    """The name that a word or a quoted text is.

    Raises:
        InvalidFilter: an escape is not one.
    """
    quoted = written[0] in {'"', "'"}
    return _unquoted(written, position).replace(_STAR, "*") if quoted else written


def _text(decoded: str, wildcards: bool) -> Text:
    """Asterisks in the middle are never wildcards, nor are those that were escaped."""
    if not wildcards:
        return Text(decoded.replace(_STAR, "*"))
    open_start, open_end = decoded.startswith(_STAR), decoded.endswith(_STAR)
    return Text(
        decoded[open_start : max(open_start, len(decoded) - open_end)].replace(_STAR, "*"), open_start, open_end
    )


def _number(written: str, position: int) -> Number:
    try:
        whole = int(written)
    except ValueError:
        value: int | float = float(written)
    else:
        value = whole if -(2**63) <= whole < 2**63 else float(written)
    if value in {float("inf"), float("-inf")}:
        raise InvalidFilter(position, f"{shown(written)} is more than a number of 64 bits can be")
    return Number(value)


def _unquoted(written: str, position: int) -> str:
    """What stands between the quotes, escapes resolved, and `_STAR` for asterisks that were not escaped."""
    parts: list[str] = []
    i, end = 1, len(written) - 1
    while i < end:
        character = written[i]
        if character != "\\":
            parts.append(_STAR if character == "*" else character)
            i += 1
            continue
        code = written[i + 1]
        if code == "u" and _HEX.match(written, i + 2, end):
            parts.append(chr(int(written[i + 2 : i + 6], 16)))
            if parts[-1] == "\0":
                raise InvalidFilter(position + i, "no text holds a NUL character")
            i += 6
        elif code in _ESCAPES:
            parts.append(_ESCAPES[code])
            i += 2
        else:
            known = r"\\ \" \' \* \n \t \r \u00e9"
            raise InvalidFilter(position + i, f"{shown(written[i : i + 2])} is no escape; these are: {known}")
    try:  # \ud83d\ude00 is one character
        return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise InvalidFilter(position, "half of a surrogate pair is not a character") from None
