"""Pieces of SQL conditions, each with its parameters, on single values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

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


def joined(word: str, pieces: Sequence[Sql]) -> Sql:
    """Joins conditions by AND or OR, as a balanced tree: SQLite refuses expressions that are nested too deep."""
    if len(pieces) == 1:
        return pieces[0]
    middle = len(pieces) // 2
    return put(f"({{}} {word} {{}})", joined(word, pieces[:middle]), joined(word, pieces[middle:]))


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
    return put("({} >= {} AND {})", found, value(text), begins)  # the first half is for indexes
