from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest

from twinlens.index.errors import InvalidArgument, InvalidVector
from twinlens.index.item import Modality, NewItem
from twinlens.index.prepare import encode_metadata, prepare_item


def new_item(**fields: Any) -> NewItem:
    return NewItem(**{"id": "a", "vectors": {}, **fields})


def test_without_an_id_the_pictures_hash_is_the_id() -> None:
    prepared = prepare_item(new_item(id="", image=b"picture", caption="words"), 2)
    assert prepared.id == prepared.content_hash == prepared.blob == hashlib.sha256(b"picture").hexdigest()


def test_without_id_and_picture_the_captions_hash_is_the_id() -> None:
    prepared = prepare_item(new_item(id="", caption="wörds"), 2)
    assert prepared.id == prepared.content_hash == hashlib.sha256("wörds".encode()).hexdigest()
    assert prepared.blob is None


def test_without_anything_to_name_it_by_an_item_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="needs an id"):
        prepare_item(new_item(id=""), 2)


def test_vectors_get_length_one() -> None:
    prepared = prepare_item(new_item(vectors={Modality.TEXT: np.array([3.0, 4.0])}), 2)
    np.testing.assert_allclose(prepared.vectors[Modality.TEXT], [0.6, 0.8], rtol=1e-6)


def test_a_bad_vector_is_named_with_its_item_and_both_sides() -> None:
    with pytest.raises(InvalidVector, match="the image vector of item 'a' has dimension 3, but 2 is wanted"):
        prepare_item(new_item(vectors={Modality.IMAGE: np.ones(3)}), 2)


def test_a_modality_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'sound': it must be one of image, text"):
        prepare_item(new_item(vectors={"sound": np.ones(2)}), 2)


def deep(levels: int) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for _ in range(levels):
        nested = {"a": nested}
    return nested


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"a": None, "b": [1, 2.5, "x", True, {"c": {}}]},
        {"ключ": "значение"},
        {"": ""},
        {"a": "\\u0000\x01"},
        {"n": 2**70},
        deep(24),
        {"a": [deep(22)]},
    ],
    ids=str,
)
def test_metadata_comes_back_as_it_was(metadata: dict[str, Any]) -> None:
    assert json.loads(encode_metadata(metadata)) == metadata


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"a": float("nan")}, "JSON"),
        ({"a": float("inf")}, "JSON"),
        ({"a": object()}, "JSON"),
        ({"a": {1, 2}}, "JSON"),
        ({"a": b"x"}, "JSON"),
        ({1: "a"}, "the key 1 is not a text"),
        ({"a": [{None: 1}]}, "the key None is not a text"),
        ({"a": "\ud800"}, "JSON"),
        ({"a": ["x\0y"]}, "a text has a NUL character"),
        ({"a": {"x\0": 1}}, "a key has a NUL character"),
        (deep(100_000), "nested more than 24 deep"),
        (deep(25), "nested more than 24 deep"),
        ({"a": [deep(23)]}, "nested more than 24 deep"),
        ({"a": "x" * 65536}, "at most 65536 are allowed"),
        ([1], "must be a mapping, not list"),
        ("text", "must be a mapping, not str"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_metadata_that_json_cannot_keep_is_refused(metadata: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        encode_metadata(metadata)


@pytest.mark.parametrize("field", ["caption", "uri"])
@pytest.mark.parametrize(("text", "message"), [("a\0b", "NUL"), ("\ud800", "surrogate"), ("x" * 70_000, "at most")])
def test_texts_that_cannot_be_kept_are_refused(field: str, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"the {field}.*{message}"):
        prepare_item(new_item(**{field: text}), 2)
