"""From a filter to a condition on the table of items. Whatever a caller wrote travels as a parameter."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Collection

from twinlens.index.filters import json_paths
from twinlens.index.filters.ast import (
    And,
    Anything,
    Boolean,
    Comparison,
    Filter,
    MetadataPath,
    Not,
    Operator,
    OwnField,
    Text,
    Time,
    Value,
)
from twinlens.index.filters.conditions import TIME_FUNCTION, Sql, holds, joined, put, text_holds, value
from twinlens.index.filters.times import microseconds

_TIME_COLUMNS = {"create_time": "items.created_s", "update_time": "items.updated_s"}


def condition(node: Filter, indexed: Collection[tuple[str, ...]] = ()) -> Sql:
    """The condition that is true of the items that match.

    Args:
        node: The filter.
        indexed: Paths into metadata that have an index, to be used where it helps.
    """
    return _condition(node, indexed)[0]


def _condition(node: Filter, indexed: Collection[tuple[str, ...]]) -> tuple[Sql, int]:
    """The condition, and how many symbols reading it takes; see `joined`."""
    if isinstance(node, Comparison):
        if isinstance(node.field, OwnField):
            return _of_own(node.field.name, node.operator, node.value), 0
        return _of_metadata(node.field, node.operator, node.value, node.field.segments in indexed), 0
    if isinstance(node, Not):
        operand, symbols = _condition(node.operand, indexed)
        return put("({} IS NOT TRUE)", operand), symbols + 1  # what is NULL is not true, either
    word = "AND" if isinstance(node, And) else "OR"
    return joined(word, [_condition(each, indexed) for each in node.operands])


def prepare(connection: sqlite3.Connection) -> None:
    """Gives a connection the function that conditions on times call."""
    connection.create_function(TIME_FUNCTION, 1, microseconds, deterministic=True)


def _of_own(name: str, operator: Operator, wanted: Value) -> Sql:
    if name in _TIME_COLUMNS:
        return Sql("1") if isinstance(wanted, Anything) else _of_time(_TIME_COLUMNS[name], operator, wanted)
    if name == "has_image":
        flag = wanted.value if isinstance(wanted, Boolean) else True
        return Sql(f"items.blob IS {'NOT ' if flag is not (operator is Operator.NOT_EQUAL) else ''}NULL")
    column = Sql(f"items.{name}")
    if not isinstance(wanted, Text):
        return put("{} <> ''", column)
    if operator is Operator.NOT_EQUAL:
        return put("(NOT {})", text_holds(column, Operator.EQUAL, wanted))
    return text_holds(column, Operator.EQUAL if operator is Operator.HAS else operator, wanted)


def _of_metadata(field: MetadataPath, operator: Operator, wanted: Value, indexed: bool) -> Sql:
    if operator is not Operator.HAS:
        return json_paths.at(field.segments, lambda kind, found: holds(kind, found, operator, wanted), indexed=indexed)
    if field.segments:
        return json_paths.reached(field.segments, lambda kind, found: _has(kind, found, wanted))
    if isinstance(wanted, Anything):
        return Sql("items.metadata <> '{}'")
    return json_paths.any_key(Sql("'object'"), Sql("items.metadata"), _key_test(wanted))


def _has(kind: Sql, found: Sql, wanted: Value) -> Sql:
    """Whether it is the value, a list with it, or a mapping with it as a key."""
    if isinstance(wanted, Anything):
        return put("{} IS NOT NULL", kind)

    def equal(of_kind: Sql, of: Sql) -> Sql:
        return holds(of_kind, of, Operator.EQUAL, wanted)

    ways = [equal(kind, found), json_paths.any_element(kind, found, equal)]
    if isinstance(wanted, Text | Time):
        ways.append(json_paths.any_key(kind, found, _key_test(wanted)))
    return put(f"({' OR '.join(['{}'] * len(ways))})", *ways)


def _key_test(wanted: Value) -> Callable[[Sql], Sql]:
    if isinstance(wanted, Text):
        return lambda key: text_holds(key, Operator.EQUAL, wanted)
    if isinstance(wanted, Time):
        return lambda key: put("{} = {}", key, value(wanted.text))
    return lambda _: Sql("0")


def _of_time(column: str, operator: Operator, wanted: Value) -> Sql:
    """Compares times to the microsecond in which they are shown, on the bare column."""
    if not isinstance(wanted, Time):
        raise TypeError(f"{column} cannot be compared with {wanted}")
    begin, end = value(_first_second(wanted.microseconds)), value(_first_second(wanted.microseconds + 1))
    match operator:
        case Operator.LESS:
            return put(f"{column} < {{}}", begin)
        case Operator.LESS_OR_EQUAL:
            return put(f"{column} < {{}}", end)
        case Operator.GREATER:
            return put(f"{column} >= {{}}", end)
        case Operator.GREATER_OR_EQUAL:
            return put(f"{column} >= {{}}", begin)
        case Operator.NOT_EQUAL:
            return put(f"({column} < {{}} OR {column} >= {{}})", begin, end)
        case _:
            return put(f"({column} >= {{}} AND {column} < {{}})", begin, end)


def _first_second(moment: int) -> float:
    """The least number of seconds that rounds to no less than so many microseconds."""
    below, above = math.nextafter((moment - 2) / 1e6, -math.inf), math.nextafter((moment + 1) / 1e6, math.inf)
    while below < (middle := below + (above - below) / 2) < above:
        if round(middle * 1e6) >= moment:
            above = middle
        else:
            below = middle
    return above
