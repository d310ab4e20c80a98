"""What a filter says, once it is read: comparisons joined by AND, OR and NOT."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Operator(StrEnum):
    """What a comparison asks."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    HAS = ":"


ORDERS = frozenset({Operator.LESS, Operator.LESS_OR_EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL})


@dataclass(frozen=True, slots=True)
class OwnField:
    """A field that every item has: `id`, `caption`, `create_time` and so on."""

    name: str


@dataclass(frozen=True, slots=True)
class MetadataPath:
    """A place in the metadata, as the keys that lead to it; none: all of it."""

    segments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A text, or with `open_start` or `open_end` all texts that go on there."""

    text: str
    open_start: bool = False
    open_end: bool = False


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number of 64 bits, or a finite float."""

    value: int | float


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    value: bool


@dataclass(frozen=True, slots=True)
class Null:
    """JSON's null."""


@dataclass(frozen=True, slots=True)
class Time:
    """A moment, in microseconds since the epoch, and how it was written."""

    microseconds: int
    text: str


@dataclass(frozen=True, slots=True)
class Anything:
    """The `*` in `tags:*`: whatever is there."""


Value: TypeAlias = Text | Number | Boolean | Null | Time | Anything


@dataclass(frozen=True, slots=True)
class Comparison:
    """One condition on one field. Kinds of field, operator and value fit together."""

    field: OwnField | MetadataPath
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class And:
    """All must hold: two or more."""

    operands: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One must hold: two or more."""

    operands: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite: also true of items that have no such field."""

    operand: Filter


Filter: TypeAlias = Comparison | And | Or | Not
