"""Which collections a request names, wherever in it that is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

FIELD = "collection"
Path = tuple[FieldDescriptor, ...]


def paths_to_collections(message: type[Message]) -> tuple[Path, ...]:
    """Where messages of a class may name a collection: every text field of that name, at any depth.

    Found by the types, not listed: a field that is added to the wire is looked at without anyone's thinking of it.
    """
    return tuple(_paths(cast("Descriptor", message.DESCRIPTOR), ()))


def collections_named(message: Message, paths: Iterable[Path]) -> Iterator[str]:
    """The ids that a message has there; those that are empty name none."""
    for path in paths:
        yield from _values(message, path)


def _paths(message: Descriptor, above: Path) -> Iterator[Path]:
    for field in message.fields:
        if field.name == FIELD and field.type == FieldDescriptor.TYPE_STRING:
            yield (*above, field)
        elif field.message_type is not None and not _seen(field.message_type, above, message):
            yield from _paths(field.message_type, (*above, field))


def _seen(found: Descriptor, above: Path, message: Descriptor) -> bool:
    """Whether a type holds itself, as google.protobuf.Struct does."""
    types = [message, *(field.containing_type for field in above)]
    return any(each is not None and each.full_name == found.full_name for each in types)


def _values(message: Message, path: Path) -> Iterator[str]:
    field, *rest = path
    # A field that may be set or not is not asked for where it is not, for that would make one.
    if not field.is_repeated and field.message_type is not None and not message.HasField(field.name):
        return
    value = getattr(message, field.name)
    for each in value if field.is_repeated else (value,):
        if rest:
            yield from _values(each, tuple(rest))
        elif each:
            yield each
