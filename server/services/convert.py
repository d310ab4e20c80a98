"""Between the wire's messages and the core's values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from twinlens.encoders.manifest import Manifest
from twinlens.index.item import Hit, Item, Modality
from twinlens.server.core.engine import Picture, PictureAt
from twinlens.server.core.errors import ItemFailure, Reason, invalid_argument
from twinlens.v1 import collection_pb2, content_pb2, search_pb2

_REASONS = {
    Reason.INVALID_IMAGE: content_pb2.ERROR_REASON_INVALID_IMAGE,
    Reason.INVALID_TEXT: content_pb2.ERROR_REASON_INVALID_TEXT,
    Reason.INVALID_VECTOR: content_pb2.ERROR_REASON_INVALID_VECTOR,
    Reason.NOT_FOUND: content_pb2.ERROR_REASON_NOT_FOUND,
    Reason.INVALID_INPUT: content_pb2.ERROR_REASON_INVALID_INPUT,
    Reason.UNSUPPORTED: content_pb2.ERROR_REASON_UNSUPPORTED,
    Reason.NOT_FETCHED: content_pb2.ERROR_REASON_NOT_FETCHED,
    Reason.INTERNAL: content_pb2.ERROR_REASON_INTERNAL,
}
_MODALITIES = {content_pb2.MODALITY_IMAGE: Modality.IMAGE, content_pb2.MODALITY_TEXT: Modality.TEXT}
_EXACT_INTEGERS = 2.0**53


def model_info(manifest: Manifest) -> content_pb2.ModelInfo:
    """What identifies the model behind a response."""
    return content_pb2.ModelInfo(
        name=manifest.name,
        version=manifest.version,
        space_id=manifest.space_id,
        dimension=manifest.dimension,
        has_image_tower=manifest.image is not None,
        has_text_tower=manifest.text is not None,
    )


def item_error(failure: ItemFailure) -> content_pb2.ItemError:
    """An item's failure."""
    return content_pb2.ItemError(reason=_REASONS[failure.reason], message=failure.message)


def picture(image: bytes, url: str) -> Picture | PictureAt:
    """A picture that came along, or the address of one."""
    return PictureAt(url) if url else Picture(image)


def pictures(images: Iterable[bytes], urls: Iterable[str]) -> list[Picture | PictureAt]:
    """Pictures that came along, then those of addresses."""
    return [*map(Picture, images), *map(PictureAt, urls)]


def modality_or_none(value: int) -> Modality | None:
    """A modality; None where it is unspecified.

    Raises:
        ServiceError: INVALID_ARGUMENT for a number this version does not know.
    """
    if value == content_pb2.MODALITY_UNSPECIFIED:
        return None
    if value not in _MODALITIES:
        raise invalid_argument(f"modality {value} is not known")
    return _MODALITIES[content_pb2.Modality.ValueType(value)]


def item(stored: Item) -> collection_pb2.Item:
    """A stored item."""
    return collection_pb2.Item(
        id=stored.id,
        uri=stored.uri,
        caption=stored.caption,
        metadata=struct(stored.metadata),
        content_hash=stored.content_hash,
        create_time=timestamp(stored.created_s),
        update_time=timestamp(stored.updated_s),
    )


def hit(found: Hit) -> search_pb2.Hit:
    """A hit."""
    return search_pb2.Hit(item=item(found.item), score=found.score)


def timestamp(seconds: float) -> Timestamp:
    """From seconds since the epoch, UTC."""
    stamp = Timestamp()
    stamp.FromMicroseconds(round(seconds * 1e6))
    return stamp


def struct(content: Mapping[str, Any]) -> Struct:
    """Metadata for the wire."""
    message = Struct()
    message.update(dict(content))
    return message


def metadata(message: Struct) -> dict[str, Any]:
    """Metadata from the wire. Whole numbers become integers: the wire knows only doubles.

    Raises:
        ValueError: for NaN and infinities, which JSON does not have.
    """
    return {key: _value(value) for key, value in message.fields.items()}


def _value(message: Value) -> Any:
    match message.WhichOneof("kind"):
        case "number_value":
            number = message.number_value
            if not math.isfinite(number):
                raise ValueError("metadata holds a number that is not finite")
            return int(number) if number.is_integer() and abs(number) < _EXACT_INTEGERS else number
        case "string_value":
            return message.string_value
        case "bool_value":
            return message.bool_value
        case "struct_value":
            return metadata(message.struct_value)
        case "list_value":
            return [_value(entry) for entry in message.list_value.values]
        case _:
            return None
