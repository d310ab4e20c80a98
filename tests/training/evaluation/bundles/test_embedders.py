"""The same vectors from a bundle in this process and from a server, and each item embedded once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import solid
from twinlens.client import Client, TwinlensError
from twinlens.client.types import EmbedBatch
from twinlens.server.local import local_server
from twinlens.training.data.listed_pictures import ListedPicture, Picture
from twinlens.training.evaluation.bundles.bundle_embedder import BundleEmbedder
from twinlens.training.evaluation.bundles.embedder import Embedder, EvaluatedModel, OnDone, Vectors
from twinlens.training.evaluation.bundles.server_embedder import ServerEmbedder
from twinlens.training.evaluation.bundles.vectors_once import VectorsOnce


def ignore(failed: bool) -> None:
    del failed


def given(data: bytes, name: str) -> ListedPicture:
    return ListedPicture(name, None, Path("none.parquet"), data=data)


@pytest.fixture(params=["bundle", "server"])
def embedder(request: pytest.FixtureRequest, fake_encoder: FakeEncoder) -> Iterator[Embedder]:
    if request.param == "bundle":
        yield BundleEmbedder(fake_encoder, decoders=2)
        return
    with local_server(encoder=fake_encoder) as target, Client(target) as client:
        yield ServerEmbedder(client)


def test_vectors_come_in_order_and_what_fails_fails_alone(embedder: Embedder, tmp_path: Path) -> None:
    (tmp_path / "red.png").write_bytes(solid("red"))
    pictures = [
        ListedPicture("red", None, tmp_path / "red.png"),
        given(b"no picture", "broken"),
        ListedPicture("gone", None, tmp_path / "gone.png"),
        *(given(solid(colour), colour) for colour in ["blue", "green"] * 40),
    ]
    done: list[bool] = []
    found = embedder.images(pictures, done.append)
    assert sorted(found.problems) == [1, 2]
    assert "not exist" in found.problems[2]
    assert np.isnan(found.rows[[1, 2]]).all()
    names = embedder.texts(["red", "blue", "green"], ignore).rows
    nearest = (found.rows[[0, 3, 4, 81, 82]] @ names.T).argmax(axis=1)
    assert nearest.tolist() == [0, 1, 2, 1, 2]
    assert done == [False, True, True] + [False] * 80


def test_cut_and_empty_texts_are_told(embedder: Embedder) -> None:
    found = embedder.texts(["red", "word " * 60, " "], ignore)
    assert found.truncated == {1}
    assert sorted(found.problems) == [2]


def test_a_bundle_and_its_server_give_the_same_vectors(fake_encoder: FakeEncoder) -> None:
    texts, pictures = ["a red thing", "blue"], [given(solid("red"), "a"), given(solid("cyan"), "b")]
    here = BundleEmbedder(fake_encoder)
    with local_server(encoder=fake_encoder) as target, Client(target) as client:
        there = ServerEmbedder(client)
        np.testing.assert_allclose(there.texts(texts, ignore).rows, here.texts(texts, ignore).rows, atol=1e-6)
        np.testing.assert_allclose(there.images(pictures, ignore).rows, here.images(pictures, ignore).rows, atol=1e-6)
        assert there.model.space_id == here.model.space_id
        assert (there.model.has_image_tower, there.model.has_text_tower) == (True, True)


def test_another_encoder_on_the_way_ends_it(fake_encoder: FakeEncoder) -> None:
    other = FakeEncoder(seed=1, version="2")
    with (
        local_server(encoder=fake_encoder) as target,
        local_server(encoder=other) as later,
        Client(target) as client,
        Client(later) as moved,
    ):
        embedder = ServerEmbedder(client)
        embedder._client = moved
        with pytest.raises(TwinlensError, match=r"changed its encoder from fake/1 to fake/2"):
            embedder.texts(["red"], ignore)


def test_a_server_gets_huge_pictures_in_small_calls(fake_encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    data = [solid(colour) for colour in ["red", "blue"] * 3]
    monkeypatch.setattr("twinlens.training.evaluation.bundles.server_embedder._BYTES_A_CALL", 2 * len(max(data)))
    calls: list[int] = []
    with local_server(encoder=fake_encoder) as target, Client(target) as client:
        embedder, whole = ServerEmbedder(client), client.embed_images
        wanted = whole(data).vectors

        def counted(images: Sequence[bytes]) -> EmbedBatch:
            calls.append(len(images))
            return whole(images)

        monkeypatch.setattr(client, "embed_images", counted)
        found = embedder.images([given(each, str(i)) for i, each in enumerate(data)], ignore)
    np.testing.assert_allclose(found.rows, wanted, atol=1e-6)
    assert sum(calls) == 6
    assert max(calls) <= 2


class Counting:
    """Embeds a text as its length, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @property
    def model(self) -> EvaluatedModel:
        return EvaluatedModel("counting", "1", "space", 2, True, True, "here")

    def images(self, pictures: Sequence[Picture], done: OnDone) -> Vectors:
        return self.texts([picture.name for picture in pictures], done)

    def texts(self, texts: Sequence[str], done: OnDone) -> Vectors:
        self.asked += texts
        for text in texts:
            done(text == "bad")
        rows = np.array([[len(text), 1.0] for text in texts], dtype=np.float32)
        return Vectors(rows, {i: "bad" for i, text in enumerate(texts) if text == "bad"}, frozenset())


def test_nothing_is_embedded_twice() -> None:
    counting = Counting()
    once = VectorsOnce(counting)
    first = once.texts(["a", "bad", "a", "ccc"])
    again = once.texts(["ccc", "dd", "bad"])
    assert counting.asked == ["a", "bad", "ccc", "dd"]
    assert first.rows[:, 0].tolist() == [1.0, 3.0, 1.0, 3.0]
    assert first.problems == {1: "bad"}
    assert again.rows[:, 0].tolist() == [3.0, 2.0, 3.0]
    assert again.problems == {2: "bad"}


def test_pictures_are_told_apart_by_where_they_lie() -> None:
    counting = Counting()
    once = VectorsOnce(counting)
    once.images(
        [ListedPicture("one", None, Path("shard.tar"), offset=0), ListedPicture("two", None, Path("shard.tar"), 9)]
    )
    once.images([ListedPicture("other name", None, Path("shard.tar"), offset=9)])
    once.images([given(b"1", "row 1"), given(b"2", "row 2")])
    assert counting.asked == ["one", "two", "row 1", "row 2"]
