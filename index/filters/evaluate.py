"""Whether an item matches a filter, decided in Python: what the database must decide in the same way."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from twinlens.index.filters.ast import (
    And,
    Anything,
    Boolean,
    Comparison,
    Filter,
    MetadataPath,
    Not,
    Null,
    Number,
    Operator,
    Text,
    Time,
    Value,
)
from twinlens.index.filters.fields import TEXTS, TIMES
from twinlens.index.filters.times import microseconds
from twinlens.index.item import Item

_ORDER: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.HAS: operator.eq,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}
_MISSING = object()


def matches(node: Filter, item: Item) -> bool:
    """Whether an item matches. Two-valued: what is missing matches no comparison, and NOT turns that around."""
    if isinstance(node, Comparison):
        return _compared(node, item)
    if isinstance(node, Not):
        return not matches(node.operand, item)
    decided = (matches(operand, item) for operand in node.operands)
    return all(decided) if isinstance(node, And) else any(decided)


def _compared(node: Comparison, item: Item) -> bool:
    if isinstance(node.field, MetadataPath):
        if node.operator is Operator.HAS:
            if not node.field.segments and isinstance(node.value, Anything):
                return bool(item.metadata)
            return any(_has(found, node.value) for found in _reached(item.metadata, node.field.segments))
        return _holds(_at(item.metadata, node.field.segments), node.operator, node.value)
    own: Any
    if node.field.name in TIMES:
        own = round((item.created_s if node.field.name == "create_time" else item.updated_s) * 1e6)
    else:
        own = getattr(item, node.field.name)
    if isinstance(node.value, Anything):
        return own != "" if node.field.name in TEXTS else own is not False
    if isinstance(node.value, Time):
        equal = _ORDER.get(node.operator)
        return equal(own, node.value.microseconds) if equal else own != node.value.microseconds
    return _holds(own, node.operator, node.value)


def _holds(found: Any, asked: Operator, value: Value) -> bool:
    """Whether a single value compares as asked: only like with like."""
    if asked is Operator.NOT_EQUAL:
        single = found is not _MISSING and not isinstance(found, Mapping | list | tuple)
        return single and not _holds(found, Operator.EQUAL, value)
    compare = _ORDER[asked]
    match value:
        case Number(number):
            return isinstance(found, int | float) and not isinstance(found, bool) and compare(_wide(found), number)
        case Boolean(wanted):
            return found is wanted
        case Null():
            return found is None
        case Time(moment, _):
            at = microseconds(found)
            return at is not None and compare(at, moment)
        case Text(text, open_start, open_end):
            if not isinstance(found, str):
                return False
            if open_start and open_end:
                return text in found
            if open_start:
                return found.endswith(text)
            return found.startswith(text) if open_end else compare(found, text)
        case _:
            return found is not _MISSING


def _has(found: Any, value: Value) -> bool:
    """Whether it is the value, a list with it, or a mapping with it as a key."""
    if isinstance(value, Anything):
        return True
    if isinstance(found, Mapping):
        key = Text(value.text) if isinstance(value, Time) else value
        return isinstance(key, Text) and any(_holds(each, Operator.EQUAL, key) for each in found)
    if isinstance(found, list | tuple):
        return any(_holds(each, Operator.EQUAL, value) for each in found)
    return _holds(found, Operator.EQUAL, value)


def _at(metadata: Any, segments: tuple[str, ...]) -> Any:
    """What is there, or `_MISSING`."""
    found = metadata
    for segment in segments:
        if not isinstance(found, Mapping) or segment not in found:
            return _MISSING
        found = found[segment]
    return found


def _reached(metadata: Any, segments: tuple[str, ...]) -> list[Any]:
    """What is there, where a path goes on in every element of a list on its way."""
    reached = [metadata]
    for segment in segments:
        inside = [each for found in reached for each in (found if isinstance(found, list | tuple) else [found])]
        reached = [each[segment] for each in inside if isinstance(each, Mapping) and segment in each]
    return reached


def _wide(number: int | float) -> int | float:  # noqa: PYI041 - mypy would take the integers for unreachable
    """A number as the database holds it: integers of more than 64 bits become floats."""
    if isinstance(number, float) or -(2**63) <= number < 2**63:
        return number
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
