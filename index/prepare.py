"""Checks items before anything is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index.blobs import content_hash
from twinlens.index.errors import InvalidArgument
from twinlens.index.ids import check_item_id
from twinlens.index.item import Modality, NewItem
from twinlens.index.vectors import unit_vectors

MAX_METADATA_BYTES = 64 * 1024
# Protobuf reads messages at most 100 deep, and each level of metadata takes three: what is nested deeper could be
# stored, but never sent.
MAX_METADATA_DEPTH = 24
MAX_CAPTION_BYTES = 64 * 1024
MAX_URI_BYTES = 8 * 1024


@dataclass(frozen=True, slots=True)
class PreparedItem:
    """An item in the form in which it is stored."""

    id: str
    uri: str
    caption: str
    metadata: str
    content_hash: str
    image: bytes | None
    vectors: Mapping[Modality, NDArray[np.float32]]

    @property
    def blob(self) -> str | None:
        """The hash of the picture, if there is one."""
        return None if self.image is None else self.content_hash


def prepare_item(item: NewItem, dimension: int) -> PreparedItem:
    """Checks an item and scales its vectors.

    Args:
        item: As given.
        dimension: Of the active generation.

    Raises:
        InvalidArgument: id, texts or metadata break a rule.
        InvalidVector: a vector is unusable.
    """
    caption = _check_text(item.caption, "caption", MAX_CAPTION_BYTES)
    if item.image is not None:
        digest = content_hash(item.image)
    else:
        digest = content_hash(caption.encode()) if caption else ""
    item_id = item.id or digest
    if not item_id:
        raise InvalidArgument("an item without picture and caption needs an id")
    return PreparedItem(
        id=check_item_id(item_id),
        uri=_check_text(item.uri, "uri", MAX_URI_BYTES),
        caption=caption,
        metadata=encode_metadata(item.metadata),
        content_hash=digest,
        image=item.image,
        vectors=prepare_vectors(item.vectors, dimension, item_id),
    )


def prepare_vectors(
    vectors: Mapping[Modality, NDArray[np.floating[Any]]],
    dimension: int,
    item_id: str,
) -> dict[Modality, NDArray[np.float32]]:
    """Checks and scales the vectors of one item, each of shape (d,)."""
    prepared = {}
    for given, vector in vectors.items():
        modality = check_modality(given)
        what = f"the {modality} vector of item {item_id!r}"
        prepared[modality] = unit_vectors(np.asarray(vector)[np.newaxis], dimension, what=what)[0]
    return prepared


def check_modality(modality: Modality | str) -> Modality:
    """Returns the modality meant.

    Raises:
        InvalidArgument: there is none of that name.
    """
    try:
        return Modality(modality)
    except ValueError as error:
        known = ", ".join(Modality)
        raise InvalidArgument(f"modality {modality!r}: it must be one of {known}") from error


def encode_metadata(metadata: Mapping[str, Any]) -> str:
    """Writes metadata as JSON.

    Raises:
        InvalidArgument: not a mapping of texts to JSON values, nested more than 24 deep, larger than 64 KiB, or with a
            NUL character.
    """
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"metadata must be a mapping, not {type(metadata).__name__}")
    try:
        _check_nesting(metadata, MAX_METADATA_DEPTH)
        text = json.dumps(dict(metadata), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"metadata cannot be written as JSON: {error}") from error
    if size > MAX_METADATA_BYTES:
        raise InvalidArgument(f"metadata is {size} bytes as JSON, at most {MAX_METADATA_BYTES} are allowed")
    return text


def _check_nesting(value: object, levels: int) -> None:
    """Refuses keys that are not texts (JSON would quietly turn the key 1 into "1") and what lies too deep.

    Texts end for SQLite's JSON functions, and so for filters, at a NUL character: these are refused, too.
    """
    if isinstance(value, str) and "\0" in value:
        raise ValueError("a text has a NUL character")
    if not isinstance(value, Mapping | list | tuple):
        return
    if not levels and value:
        raise ValueError(f"it is nested more than {MAX_METADATA_DEPTH} deep")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not a text")
            if "\0" in key:
                raise ValueError("a key has a NUL character")
            _check_nesting(inner, levels - 1)
    else:
        for inner in value:
            _check_nesting(inner, levels - 1)


def _check_text(text: str, what: str, limit: int) -> str:
    if not isinstance(text, str):
        raise InvalidArgument(f"the {what} must be a text, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"the {what} has a lone surrogate, which is not a character") from error
    if "\0" in text:
        raise InvalidArgument(f"the {what} has a NUL character")
    if size > limit:
        raise InvalidArgument(f"the {what} is {size} bytes, at most {limit} are allowed")
    return text
