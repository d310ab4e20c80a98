"""Free-form metadata: JSON-compatible mappings to protobuf's Struct and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.struct_pb2 import NULL_VALUE, ListValue, Struct, Value

from twinlens.client.errors import invalid

# Protobuf reads messages at most 100 deep, and each level of metadata takes three.
_MAX_DEPTH = 24


def to_struct(metadata: Mapping[str, Any]) -> Struct:
    """The wire form of a mapping.

    Raises:
        TwinlensError: INVALID_ARGUMENT naming the key whose value JSON does not have, or that is nested too deep.
    """
    return _struct(metadata, _MAX_DEPTH)


def _struct(metadata: Mapping[str, Any], depth: int) -> Struct:
    struct = Struct()
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise invalid(f"metadata keys are text, not {key!r}")
        struct.fields[check_text(key, "a metadata key")].CopyFrom(_value(value, key, depth))
    return struct


def from_struct(struct: Struct) -> dict[str, Any]:
    """The mapping of a wire form; whole numbers come back as int, as they do from JSON."""
    return {key: _plain(value) for key, value in struct.fields.items()}


def check_text(text: str, what: str) -> str:
    """The text, if it can travel.

    Raises:
        TwinlensError: INVALID_ARGUMENT where it holds half of a surrogate pair, which no encoding carries.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise invalid(f"{what} holds half of a surrogate pair, which is not text: {text[:40]!a}") from None
    return text


def _value(value: Any, key: str, depth: int) -> Value:
    if not depth:
        raise invalid(f"metadata is nested more than {_MAX_DEPTH} deep (at {key!r})")
    if value is None:
        return Value(null_value=NULL_VALUE)
    if isinstance(value, bool):
        return Value(bool_value=value)
    if isinstance(value, int | float):
        try:
            return Value(number_value=float(value))
        except OverflowError:
            raise invalid(f"metadata {key!r} is a number of more than 64 bits") from None
    if isinstance(value, str):
        return Value(string_value=check_text(value, f"metadata {key!r}"))
    if isinstance(value, Mapping):
        return Value(struct_value=_struct(value, depth - 1))
    if isinstance(value, list | tuple):
        return Value(list_value=ListValue(values=[_value(each, key, depth - 1) for each in value]))
    raise invalid(f"metadata {key!r} is a {type(value).__name__}, which JSON does not have")


def _plain(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    if kind == "string_value":
        return value.string_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "struct_value":
        return from_struct(value.struct_value)
    if kind == "list_value":
        return [_plain(each) for each in value.list_value.values]
    return None
