"""Which fields items have of their own, and what they can be compared with."""

from __future__ import annotations

from twinlens.index.filters import literals
from twinlens.index.filters.ast import (
    ORDERS,
    Anything,
    Boolean,
    Comparison,
    MetadataPath,
    Null,
    Operator,
    OwnField,
    Text,
    Time,
    Value,
)
from twinlens.index.filters.errors import InvalidFilter, shown
from twinlens.index.filters.times import microseconds

TEXTS = ("id", "uri", "caption", "content_hash")
FLAGS = ("has_image",)
TIMES = ("create_time", "update_time")
OWN = (*TEXTS, *FLAGS, *TIMES)
METADATA = "metadata"
MAX_SEGMENTS = 24  # metadata is not nested deeper


def comparison(names: tuple[str, ...], at: int, operator: Operator, written: str, value_at: int) -> Comparison:
    """What a condition asks.

    Args:
        names: The path, as names.
        at: Where it begins, in characters from 0.
        operator: Between path and value.
        written: The value as it stands in the filter.
        value_at: Where that begins.

    Raises:
        InvalidFilter: such a field cannot be compared with such a value, or not in this way.
    """
    first, *inner = names
    if first in OWN:
        if inner:
            raise InvalidFilter(
                at, f"{first} is a field of the item and has nothing inside; for metadata write metadata.{first}…"
            )
        return Comparison(OwnField(first), operator, _of_own(first, operator, written, value_at))
    path = tuple(inner) if first == METADATA else names
    if len(path) > MAX_SEGMENTS:
        raise InvalidFilter(at, f"the path has {len(path)} names; metadata is nested at most {MAX_SEGMENTS} deep")
    if not path and operator is not Operator.HAS:
        raise InvalidFilter(at, 'metadata as a whole cannot be compared: name a key, as in metadata.tag = "cat"')
    return Comparison(MetadataPath(path), operator, _of_metadata(operator, written, value_at))


def _of_metadata(operator: Operator, written: str, at: int) -> Value:
    ordered = operator in ORDERS
    value = literals.typed(written, at, wildcards=not ordered)
    if isinstance(value, Anything) and operator is not Operator.HAS:
        return Text("*") if ordered else Text("", open_start=True, open_end=True)
    if ordered and isinstance(value, Boolean | Null):
        raise InvalidFilter(at, f"{written} has no order: compare it with = or !=")
    return value


def _of_own(name: str, operator: Operator, written: str, at: int) -> Value:
    if written == "*" and operator is Operator.HAS:
        return Anything()
    if name in TEXTS:
        return literals.text(written, at, wildcards=operator not in ORDERS)
    if name in FLAGS:
        if operator in ORDERS:
            raise InvalidFilter(at, f"{name} has no order: compare it with = or !=")
        if written not in {"true", "false"}:
            raise InvalidFilter(at, f"{name} is true or false, not {shown(written)}")
        return Boolean(written == "true")
    plain = literals.text(written, at, wildcards=False).text
    moment = microseconds(plain)
    if moment is None:
        raise InvalidFilter(
            at, f"{name} is a time such as 2024-05-01T09:30:00Z or a date such as 2024-05-01, not {shown(plain)}"
        )
    return Time(moment, plain)
