"""Between the wire and plain values: builds messages, reads messages. Pure functions; no calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, get_args

import numpy as np
from google.protobuf.timestamp_pb2 import Timestamp
from numpy.typing import NDArray

from twinlens.client import types
from twinlens.client.errors import TwinlensError, invalid
from twinlens.client.images import picture
from twinlens.client.metadata import check_text, from_struct, to_struct
from twinlens.v1 import classification_pb2, collection_pb2, content_pb2, embedding_pb2, model_pb2, search_pb2

_MODALITIES = {
    "image": content_pb2.MODALITY_IMAGE,
    "text": content_pb2.MODALITY_TEXT,
}

# What a single query's failure means as the status of a call of its own.
_REASON_CODES = {
    "NOT_FOUND": "NOT_FOUND",
    "UNSUPPORTED": "FAILED_PRECONDITION",
    "INTERNAL": "INTERNAL",
}


def modality(name: str) -> content_pb2.Modality.ValueType:
    """The wire form of "image" or "text".

    Raises:
        TwinlensError: INVALID_ARGUMENT for anything else.
    """
    if name not in _MODALITIES:
        raise invalid(f"modality is one of {', '.join(get_args(types.Modality))}, not {name!r}")
    return _MODALITIES[name]


def vector(values: NDArray[np.floating[Any]] | Sequence[float]) -> content_pb2.Vector:
    """The wire form of one vector.

    Raises:
        TwinlensError: INVALID_ARGUMENT where it is not a non-empty list of numbers.
    """
    try:
        with np.errstate(over="ignore"):  # the server refuses what is not finite
            array = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise invalid(f"a vector is a list of numbers: {error}") from None
    if array.ndim != 1 or not array.size:
        raise invalid(f"a vector has shape (d,), not {array.shape}")
    return content_pb2.Vector(values=array.tolist())


def query(given: types.QueryInput) -> search_pb2.Query:
    """The wire form of a query.

    Raises:
        TwinlensError: INVALID_ARGUMENT where a part holds none or several things, or a picture cannot be read.
    """
    parts: Sequence[types.Part]
    if isinstance(given, str):
        parts = [types.Part(text=given)]
    elif isinstance(given, types.Part):
        parts = [given]
    elif isinstance(given, np.ndarray):
        parts = [types.Part(vector=given)]
    else:
        parts = given
    if not parts:
        raise invalid("an empty query: give a text, a picture, a vector or an item")
    return search_pb2.Query(parts=[_part(part) for part in parts])


def _part(part: types.Part) -> search_pb2.QueryPart:
    given = [name for name in ("text", "image", "vector", "item") if getattr(part, name) is not None]
    if len(given) != 1:
        raise invalid(
            f"a part of a query is one of text, image, vector and item, not {' and '.join(given) or 'nothing'}"
        )
    wire = search_pb2.QueryPart(weight=part.weight)
    if part.text is not None:
        if not part.text.strip():
            raise invalid("an empty query: the text has no characters")
        wire.text = check_text(part.text, "the query")
    elif part.image is not None:
        found = picture(part.image)
        if isinstance(found, types.ItemError):
            raise invalid(found.message)
        if isinstance(found, types.ImageUrl):
            wire.image_url = found.url
        else:
            wire.image = found
    elif part.vector is not None:
        wire.vector.CopyFrom(vector(part.vector))
    elif part.item is not None:
        wire.item_id = check_text(part.item, "the item's id")
    if part.item_modality is not None:
        wire.item_modality = modality(part.item_modality)
    return wire


def new_item(item: types.NewItem) -> collection_pb2.NewItem | types.ItemError:
    """The wire form of an item to store, or why it has none; one bad item never fails the others."""
    found = b"" if item.image is None else picture(item.image)
    if isinstance(found, types.ItemError):
        return found
    try:
        return collection_pb2.NewItem(
            id=check_text(item.id, "the id"),
            uri=check_text(item.uri, "the uri"),
            caption=check_text(item.caption, "the caption"),
            metadata=to_struct(item.metadata),
            image=found if isinstance(found, bytes) else b"",
            image_url=found.url if isinstance(found, types.ImageUrl) else "",
            image_vector=None if item.image_vector is None else vector(item.image_vector),
            text_vector=None if item.text_vector is None else vector(item.text_vector),
        )
    except TwinlensError as error:
        return types.ItemError("INVALID_INPUT", error.message)


def stored_item(given: types.StoredItem) -> embedding_pb2.StoredItem:
    """The wire form of an item whose vector is wanted.

    Raises:
        TwinlensError: INVALID_ARGUMENT where its ids cannot travel, or the modality is none.
    """
    return embedding_pb2.StoredItem(
        collection=check_text(given.collection, "the collection's id"),
        id=check_text(given.id, "the item's id"),
        modality=content_pb2.MODALITY_UNSPECIFIED if given.modality is None else modality(given.modality),
    )


def error(wire: content_pb2.ItemError) -> types.ItemError:
    """Why one item failed."""
    name = content_pb2.ErrorReason.Name(wire.reason) if wire.reason in content_pb2.ErrorReason.values() else "UNKNOWN"
    return types.ItemError(name.removeprefix("ERROR_REASON_"), " ".join(wire.message.split()))


def error_of_call(item_error: types.ItemError) -> TwinlensError:
    """The failure of the only item of a call, as the failure of the call."""
    return TwinlensError(_REASON_CODES.get(item_error.reason, "INVALID_ARGUMENT"), item_error.message)


def error_of_examples(which: str, first: types.ItemError, count: int) -> TwinlensError:
    """The failure of a call of whose examples `count` cannot be used, the first of them for this reason."""
    why = error_of_call(first)
    others = f" (and {count - 1:,} more)" if count > 1 else ""
    return TwinlensError(why.code, f"{which} cannot be used: {why.message}{others}")


def model_info(wire: content_pb2.ModelInfo) -> types.ModelInfo:
    """The model behind an answer."""
    return types.ModelInfo(
        name=wire.name,
        version=wire.version,
        space_id=wire.space_id,
        dimension=wire.dimension,
        has_image_tower=wire.has_image_tower,
        has_text_tower=wire.has_text_tower,
    )


def model(wire: model_pb2.Model) -> types.Model:
    """A model, its manifest parsed."""
    manifest = json.loads(wire.manifest_json) if wire.manifest_json else {}
    return types.Model(info=model_info(wire.info), active=wire.active, manifest=manifest)


def embedding(wire: embedding_pb2.EmbedResult) -> NDArray[np.float32] | types.ItemError:
    """The vector of one input, or why there is none."""
    if wire.WhichOneof("outcome") == "embedding":
        return np.asarray(wire.embedding.values, dtype=np.float32)
    return error(wire.error)


def hit(wire: search_pb2.Hit) -> types.Hit:
    """One hit."""
    return types.Hit(
        id=wire.item.id,
        score=wire.score,
        uri=wire.item.uri,
        caption=wire.item.caption,
        metadata=from_struct(wire.item.metadata),
    )


def query_result(wire: search_pb2.QueryResult) -> types.QueryResult:
    """What became of one query."""
    if wire.HasField("error"):
        return types.QueryResult(hits=(), error=error(wire.error), truncated=wire.truncated)
    return types.QueryResult(hits=tuple(hit(each) for each in wire.hits), truncated=wire.truncated)


def classification(wire: classification_pb2.ClassifyResult) -> types.Classification:
    """What became of one picture."""
    if wire.HasField("error"):
        return types.Classification(scores=(), error=error(wire.error))
    scores = tuple(types.LabelScore(each.label, each.cosine, each.probability, each.truncated) for each in wire.scores)
    return types.Classification(
        scores=scores,
        none_of_these=wire.none_of_these,
        background_cosine=wire.background_cosine if wire.HasField("background_cosine") else None,
        background_probability=wire.background_probability if wire.HasField("background_probability") else None,
    )


def item(wire: collection_pb2.Item, image: bytes | None = None) -> types.Item:
    """A stored item, with its picture's bytes where they were asked for."""
    return types.Item(
        id=wire.id,
        uri=wire.uri,
        caption=wire.caption,
        metadata=from_struct(wire.metadata),
        content_hash=wire.content_hash,
        create_time=_time(wire.create_time),
        update_time=_time(wire.update_time),
        image=image,
    )


def upsert_failure(
    wire: collection_pb2.UpsertFailure, position: int, sent: collection_pb2.NewItem
) -> types.UpsertFailure:
    """An item that the server did not store, at its position among those given, by its id as sent: replies cut it."""
    why = error(wire.error)
    return types.UpsertFailure(position=position, id=sent.id, reason=why.reason, message=why.message)


def _time(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)
