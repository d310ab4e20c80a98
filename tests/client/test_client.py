"""Embedding, searching and classifying by both clients, against a real server."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.pictures import solid
from twinlens.client import NewItem, Part, TwinlensError


def test_embeds_pictures_in_order_as_unit_vectors(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "red.png"
    path.write_bytes(solid("red"))
    picture = Image.open(io.BytesIO(solid("red")))
    batch = client.embed_images([path, solid("blue"), str(path), picture])
    assert batch.vectors.shape == (4, 32)
    assert batch.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(batch.vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(batch.vectors[0], batch.vectors[2])
    np.testing.assert_allclose(batch.vectors[0], batch.vectors[3])
    assert batch.vectors[0] @ batch.vectors[1] < 0.9
    assert not batch.errors
    assert batch.model.name == "fake"


def test_a_picture_that_fails_is_a_row_of_nan_and_the_others_are_not_affected(client: Any, tmp_path: Path) -> None:
    batch = client.embed_images([tmp_path / "missing.png", solid("red"), b"no picture", b"", solid("blue")])
    assert sorted(batch.errors) == [0, 2, 3]
    assert {error.reason for error in batch.errors.values()} == {"INVALID_IMAGE"}
    assert "missing.png" in batch.errors[0].message
    assert np.isnan(batch.vectors[[0, 2, 3]]).all()
    assert np.isfinite(batch.vectors[[1, 4]]).all()


def test_a_batch_of_which_nothing_can_be_sent_fails_item_by_item(client: Any, tmp_path: Path) -> None:
    batch = client.embed_images([tmp_path / "a.png", tmp_path / "b.png"])
    assert sorted(batch.errors) == [0, 1]
    assert batch.vectors.shape == (2, 32)
    assert np.isnan(batch.vectors).all()
    assert batch.model.name == "fake"
    assert client.embed_images([]).model is None


def test_embeds_texts_beside_pictures_of_what_they_name(client: Any) -> None:
    texts = client.embed_texts(["red", "", "a half \ud800 pair", "word " * 100])
    assert texts.errors[1].reason == "INVALID_TEXT"
    assert texts.errors[2].reason == "INVALID_TEXT"
    assert texts.truncated == (3,)
    reds, blues = client.embed_images([solid("red"), solid("blue")]).vectors
    assert texts.vectors[0] @ reds > texts.vectors[0] @ blues


@pytest.mark.parametrize("exact", [False, True])
def test_searches_by_text_picture_vector_and_item(client: Any, photos: str, exact: bool) -> None:
    vector = client.embed_images([solid("green")]).vectors[0]
    assert client.search(photos, text="green", exact=exact)[0].id == "green"
    assert client.search(photos, image=solid("green"), exact=exact)[0].id == "green"
    assert client.search(photos, vector=vector * 7, exact=exact)[0].id == "green"
    assert client.search(photos, item="green", exact=exact)[0].id == "green"


def test_a_hit_brings_what_is_stored_with_it(client: Any, photos: str) -> None:
    (hit,) = client.search(photos, text="blue", top_k=1)
    assert (hit.id, hit.caption, dict(hit.metadata)) == ("blue", "a blue wall", {"hue": "blue", "n": 3})
    assert -1 <= hit.score <= 1 + 1e-6


def test_hits_come_best_first_and_as_many_as_asked_for(client: Any, photos: str) -> None:
    hits = client.search(photos, text="red", top_k=3)
    assert len(hits) == 3
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(client.search(photos, text="red", top_k=100)) == 4


def test_a_negative_part_pushes_away(client: Any, photos: str) -> None:
    parts = [Part(text="yellow"), Part(text="red"), Part(image=solid("red"), weight=-2.0)]
    assert client.search(photos, parts=parts)[0].id == "yellow"
    assert client.search(photos, text="yellow", parts=[Part(item="red", weight=-0.5)])[-1].id == "red"


def test_searches_captions_when_asked_to(client: Any, photos: str) -> None:
    assert client.search(photos, text="a red wall", modality="text")[0].score == pytest.approx(1, abs=1e-5)
    part = Part(item="red", item_modality="text")
    assert client.search(photos, parts=[part], modality="text")[0].id == "red"


def test_hits_below_the_least_score_are_left_out(client: Any, photos: str) -> None:
    assert [hit.id for hit in client.search(photos, item="red", min_score=0.99)] == ["red"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"text": ""}, "INVALID_ARGUMENT"),
        ({"text": " \n"}, "INVALID_ARGUMENT"),
        ({}, "INVALID_ARGUMENT"),
        ({"parts": [Part()]}, "INVALID_ARGUMENT"),
        ({"parts": [Part(text="a", item="b")]}, "INVALID_ARGUMENT"),
        ({"text": "red", "top_k": 0}, "INVALID_ARGUMENT"),
        ({"text": "red", "top_k": -5}, "INVALID_ARGUMENT"),
        ({"text": "red", "modality": "sound"}, "INVALID_ARGUMENT"),
        ({"text": "red", "parts": [Part(text="red", weight=-1)]}, "INVALID_ARGUMENT"),
        ({"parts": [Part(text="red", weight=float("nan"))]}, "INVALID_ARGUMENT"),
        ({"parts": [Part(text="red", weight=float("inf"))]}, "INVALID_ARGUMENT"),
        ({"parts": [Part(text="red")] * 17}, "INVALID_ARGUMENT"),
        ({"image": b"no picture"}, "INVALID_ARGUMENT"),
        ({"image": "/no/such/file.png"}, "INVALID_ARGUMENT"),
        ({"vector": np.zeros(32)}, "INVALID_ARGUMENT"),
        ({"vector": np.ones(31)}, "INVALID_ARGUMENT"),
        ({"vector": np.ones((2, 32))}, "INVALID_ARGUMENT"),
        ({"vector": ["a"]}, "INVALID_ARGUMENT"),
        ({"item": "nobody"}, "NOT_FOUND"),
    ],
)
def test_a_query_of_no_use_ends_in_one_line(client: Any, photos: str, query: dict[str, Any], code: str) -> None:
    with pytest.raises(TwinlensError) as caught:
        client.search(photos, **query)
    assert caught.value.code == code
    assert caught.value.message
    assert "\n" not in str(caught.value)


def test_an_unknown_collection_is_not_found(client: Any) -> None:
    for call in (
        lambda: client.search("nowhere", text="red"),
        lambda: client.get_collection("nowhere"),
        lambda: client.delete_collection("nowhere"),
        lambda: client.upsert("nowhere", [NewItem(caption="a")]),
        lambda: client.get_item("nowhere", "a"),
        lambda: list(client.list_items("nowhere")),
        lambda: client.delete_items("nowhere", ["a"]),
    ):
        with pytest.raises(TwinlensError) as caught:
            call()
        assert caught.value.code == "NOT_FOUND"
        assert "nowhere" in caught.value.message


def test_one_query_of_a_batch_fails_alone(client: Any, photos: str) -> None:
    found, lost, mixed = client.search_batch(
        photos, ["red", Part(item="nobody"), [Part(text="red"), Part(text="blue", weight=2)]], top_k=1
    )
    assert (found.hits[0].id, found.error) == ("red", None)
    assert (lost.hits, lost.error.reason) == ((), "NOT_FOUND")
    assert mixed.hits[0].id == "blue"
    assert client.search_batch(photos, []) == []


def test_a_query_that_cannot_even_be_sent_fails_alone(client: Any, photos: str, tmp_path: Path) -> None:
    bad = ["", [], Part(), Part(text="\ud800"), Part(image=tmp_path / "missing.png"), Part(vector=[])]
    results = client.search_batch(photos, ["red", *bad, "blue"], top_k=1)
    assert [result.hits[0].id if result.hits else "" for result in results] == ["red", *[""] * len(bad), "blue"]
    assert [result.error.reason for result in results if result.error] == ["INVALID_INPUT"] * len(bad)
    assert all(result.error for result in client.search_batch(photos, bad))


def test_a_pillow_picture_without_pixels_fails_alone(client: Any) -> None:
    batch = client.embed_images([Image.new("RGB", (0, 4)), solid("red")])
    assert batch.errors[0].message == "the picture has no pixels"
    assert list(batch.errors) == [0]


def test_classifies_pictures_in_order(client: Any, tmp_path: Path) -> None:
    labels = ["red", "green", "blue"]
    pictures = [solid("blue"), b"broken", solid("red", "JPEG"), b"", tmp_path / "missing.png", solid("green")]
    results = client.classify(pictures, labels)
    best = [result.scores[0].label if result.scores else None for result in results]
    assert best == ["blue", None, "red", None, None, "green"]
    assert [result.error.reason for result in results if result.error] == ["INVALID_IMAGE"] * 3
    assert "missing.png" in results[4].error.message
    probabilities = [score.probability for score in results[0].scores]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1, abs=1e-4)


def test_classifies_with_templates_top_k_and_each_label_on_its_own(client: Any) -> None:
    (result,) = client.classify([solid("red")], ["red", "green"], templates=["{} paint", "a {} thing"], top_k=1)
    assert [score.label for score in result.scores] == ["red"]
    (alone,) = client.classify([solid("red")], ["red"], multi_label=True)
    assert 0 < alone.scores[0].probability <= 1


@pytest.mark.parametrize("labels", [[], "red", ["red", "red"], ["red", ""]])
def test_labels_that_cannot_be_told_apart_are_refused(client: Any, labels: Any) -> None:
    with pytest.raises(TwinlensError) as caught:
        client.classify([solid("red")], labels)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_tells_which_models_there_are(client: Any) -> None:
    (only,) = client.models()
    assert (only.info.name, only.active) == ("fake", True)
    assert only.manifest["name"] == "fake"
    assert client.model() == client.model("fake") == only
    with pytest.raises(TwinlensError) as caught:
        client.model("other")
    assert caught.value.code == "NOT_FOUND"


def test_one_value_where_several_belong_is_a_mistake_of_the_program(client: Any) -> None:
    for name, *arguments in (
        ("embed_images", "cat.jpg"),
        ("embed_images", solid("red")),
        ("embed_texts", "a cat"),
        ("classify", "cat.jpg", ["a"]),
        ("search_batch", "photos", "a cat"),
        ("delete_items", "photos", "red"),
    ):
        with pytest.raises(TypeError, match="brackets"):
            getattr(client, name)(*arguments)
