"""Pieces of SQL conditions, each with its parameters, on single values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from twinlens.index.filters.ast import Anything, Boolean, Null, Number, Operator, Text, Time, Value

TIME_FUNCTION = "twinlens_microseconds"
_SCALARS = "('text', 'integer', 'real', 'true', 'false', 'null')"


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL, and what its question marks stand for."""

    text: str
    parameters: tuple[str | int | float | bytes, ...] = ()


ALL = Sql("1")  # true of every item


def put(template: str, *pieces: Sql) -> Sql:
    """Puts pieces where a template has `{}`."""
    return Sql(template.format(*(each.text for each in pieces)), sum((each.parameters for each in pieces), ()))


def value(of: str | float | bytes) -> Sql:
    """A parameter."""
    return Sql("?", (of,))


def joined(word: str, pieces: Sequence[tuple[Sql, int]]) -> tuple[Sql, int]:
    """Joins conditions by AND or OR, two at a time, so that the whole is read with few symbols pending.

    SQLite's parser gives up at a hundred (before 3.46), and refuses what is nested a thousand deep. What stands first
    in parentheses waits behind one symbol, what stands second behind three: the deeper one comes first.

    Args:
        word: AND or OR.
        pieces: One or more, each with the symbols that reading it takes beyond those of a comparison.

    Returns:
        All of them, and so many symbols.
    """
    heap = [(symbols, place, piece) for place, (piece, symbols) in enumerate(pieces)]
    heapify(heap)
    while len(heap) > 1:
        one, other = heappop(heap), heappop(heap)
        first, second = (one, other) if one[0] == other[0] else (other, one)
        symbols = max(first[0] + 1, second[0] + 3)
        heappush(heap, (symbols, min(one[1], other[1]), put(f"({{}} {word} {{}})", first[2], second[2])))
    symbols, _, whole = heap[0]
    return whole, symbols


def holds(kind: Sql, found: Sql, operator: Operator, wanted: Value) -> Sql:
    """Whether a single JSON value compares as asked: only like with like. NULL stands for no.

    Args:
        kind: Its type, as `json_type` names it, or NULL.
        found: The value itself.
        operator: Any but `:`.
        wanted: What to compare it with.
    """
    if operator is Operator.NOT_EQUAL:
        equal = holds(kind, found, Operator.EQUAL, wanted)
        return put(f"({{}} IN {_SCALARS} AND ({{}}) IS NOT TRUE)", kind, equal)
    match wanted:
        case Number(number):
            # Read by the same routine as the stored value: SQLite's may differ from Python's in the last digit.
            asked = put(f"{{}} {operator} json_extract({{}}, '$')", found, value(json.dumps(number)))
            return put("({} AND {} IN ('integer', 'real'))", asked, kind)
        case Boolean(flag):
            return put("({} = {} AND {} = {})", found, value(int(flag)), kind, value("true" if flag else "false"))
        case Null():
            return put("{} = 'null'", kind)
        case Time(microseconds, _):
            asked = put(f"{TIME_FUNCTION}({{}}) {operator} {{}}", found, value(microseconds))
            return put("({} = 'text' AND {})", kind, asked)
        case Text():
            return put("({} AND {} = 'text')", text_holds(found, operator, wanted), kind)
        case Anything():
            return put("{} IS NOT NULL", kind)


def text_holds(found: Sql, operator: Operator, wanted: Text) -> Sql:
    """Whether a text compares as asked; `operator` is not `!=`."""
    text, raw = wanted.text, wanted.text.encode()
    if not wanted.open_start and not wanted.open_end:
        return put(f"{{}} {operator} {{}}", found, value(text))
    if not text:
        return put("{} IS NOT NULL", found)
    # Compared as bytes: UTF-8 keeps beginnings, ends and order, and LIKE would fold ASCII's case.
    if wanted.open_start and wanted.open_end:
        return put("instr(CAST({} AS BLOB), {}) > 0", found, value(raw))
    if wanted.open_start:
        return put("substr(CAST({} AS BLOB), {}) = {}", found, value(-len(raw)), value(raw))
    begins = put("substr(CAST({} AS BLOB), 1, {}) = {}", found, value(len(raw)), value(raw))
    beyond = _beyond(text)
    below = ALL if beyond is None else put("{} < {}", found, value(beyond))
    return put("({} >= {} AND {} AND {})", found, value(text), below, begins)  # the range is for indexes


def _beyond(text: str) -> str | None:
    """The least text above all that begin with this one; None where there is none."""
    rest = text.rstrip("\U0010ffff")
    if not rest:
        return None
    following = ord(rest[-1]) + 1
    return rest[:-1] + chr(0xE000 if following == 0xD800 else following)  # halves of surrogate pairs are no text
