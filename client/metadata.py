"""Free-form metadata: JSON-compatible mappings to protobuf's Struct and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.struct_pb2 import NULL_VALUE, ListValue, Struct, Value

from twinlens.client.errors import invalid


def to_struct(metadata: Mapping[str, Any]) -> Struct:
    """The wire form of a mapping.

    Raises:
        TwinlensError: INVALID_ARGUMENT naming the key whose value JSON does not have.
    """
    struct = Struct()
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise invalid(f"metadata keys are text, not {key!r}")
        struct.fields[check_text(key, "a metadata key")].CopyFrom(_value(value, key))
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


def _value(value: Any, key: str) -> Value:
    if value is None:
        return Value(null_value=NULL_VALUE)
    if isinstance(value, bool):
        return Value(bool_value=value)
    if isinstance(value, int | float):
        return Value(number_value=value)
    if isinstance(value, str):
        return Value(string_value=check_text(value, f"metadata {key!r}"))
    if isinstance(value, Mapping):
        return Value(struct_value=to_struct(value))
    if isinstance(value, list | tuple):
        return Value(list_value=ListValue(values=[_value(each, key) for each in value]))
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
