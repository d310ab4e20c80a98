"""Labelling by examples with both clients against a real server, and what goes over the wire for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_calls import carry_out
from tests.support.pictures import solid
from twinlens.client import Examples, NewItem, TwinlensError, calls, classify_calls, example_calls
from twinlens.v1 import classification_pb2, content_pb2, embedding_pb2

_numbers = itertools.count()
SHOWN = {"warm": [solid("red"), solid("yellow")], "cold": [solid("blue"), solid("cyan")], "plain": [solid("green")]}


@pytest.fixture
def labelled(client: Any) -> Iterator[str]:
    """A collection whose items say what they are: the pictures of SHOWN, and one without a label."""
    name = f"labelled-{next(_numbers)}"
    client.create_collection(name)
    items = [
        NewItem(id=f"{label}/{i}", image=image, metadata={"kind": label})
        for label, images in SHOWN.items()
        for i, image in enumerate(images)
    ]
    assert client.upsert(name, [*items, NewItem(id="other", image=solid("white"))]).stored == 6
    yield name
    client.delete_collection(name)


def best(results: Any) -> list[str | None]:
    return [result.scores[0].label if result.scores else None for result in results]


def test_pictures_get_the_label_of_the_examples_they_resemble(client: Any, tmp_path: Path) -> None:
    asked = [solid("blue", "JPEG"), b"broken", solid("red", "JPEG"), tmp_path / "missing.png", solid("green", "JPEG")]
    (tmp_path / "red.png").write_bytes(solid("red"))
    shown = {**SHOWN, "warm": [tmp_path / "red.png", solid("yellow")]}
    results = client.classify(asked, examples=shown)
    assert best(results) == ["cold", None, "warm", None, "plain"]
    assert [result.error.reason for result in results if result.error] == ["INVALID_IMAGE"] * 2
    assert sum(score.probability for score in results[0].scores) == pytest.approx(1, abs=1e-5)
    assert [len(result.scores) for result in client.classify(asked[:1], examples=shown, top_k=2)] == [2]


def test_examples_of_every_kind_give_the_same_labels(client: Any, labelled: str) -> None:
    asked = [solid("blue", "JPEG"), solid("red", "JPEG"), solid("green", "JPEG")]
    ids = {label: [f"{label}/{i}" for i in range(len(images))] for label, images in SHOWN.items()}
    for rule in ("prototype", "knn"):
        kinds = [
            Examples(images=SHOWN, rule=rule),
            Examples(items=ids, collection=labelled, rule=rule),
            Examples(collection=labelled, label_key="kind", rule=rule),
        ]
        first, *others = [client.classify(asked, examples=each) for each in kinds]
        assert best(first) == ["cold", "warm", "plain"]
        for other in others:
            for one, another in zip(first, other, strict=True):
                scores = {score.label: score.probability for score in one.scores}
                assert {s.label: s.probability for s in another.scores} == pytest.approx(scores, abs=1e-4)


def test_the_rule_and_its_numbers_arrive(client: Any) -> None:
    asked = [solid("red", "JPEG")]
    (one,) = client.classify(asked, examples=Examples(images=SHOWN, rule="knn", k=1))
    assert [score.probability for score in one.scores] == [1.0, 0.0, 0.0]
    (flat,) = client.classify(asked, examples=Examples(images=SHOWN, temperature=100.0))
    assert [score.probability for score in flat.scores] == pytest.approx([1 / 3] * 3, abs=0.01)
    words = {"red": [solid("blue")], "blue": [solid("red")]}  # examples that contradict their names
    by_text, by_picture = (
        client.classify(
            asked, examples=Examples(images=words, text_weight=weight), templates=["{}"] if weight else None
        )
        for weight in (1.0, 0.0)
    )
    assert (best(by_text), best(by_picture)) == (["red"], ["blue"])


def test_prepared_examples_name_what_cannot_be_used_and_serve_again_and_again(client: Any, tmp_path: Path) -> None:
    shown = {"warm": [b"broken", solid("red"), tmp_path / "missing.png"], "cold": [solid("blue")]}
    prepared = client.prepare_examples(shown)
    assert [(error.label, error.position, error.reason) for error in prepared.errors] == [
        ("warm", 0, "INVALID_IMAGE"),
        ("warm", 2, "INVALID_IMAGE"),
    ]
    assert "missing.png" in prepared.errors[1].message
    assert (prepared.used, prepared.labels) == (2, 2)
    for colour, label in (("red", "warm"), ("blue", "cold")):
        assert best(client.classify([solid(colour, "JPEG")], examples=prepared)) == [label]
    with pytest.raises(TwinlensError, match=r"example 0 of label 'warm' cannot be used: .* \(and 1 more\)") as caught:
        client.classify([solid("red")], examples=shown)
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({}, "INVALID_ARGUMENT", "no examples"),
        ({"a": []}, "INVALID_ARGUMENT", "label 'a' has no example that can be used: there is none"),
        ({"a": [b"x"]}, "INVALID_ARGUMENT", "label 'a' has no example that can be used: this is not a picture"),
        ({"": [solid("red")]}, "INVALID_ARGUMENT", "label is empty"),
        (Examples(label_key="kind"), "INVALID_ARGUMENT", "need the collection"),
        (Examples(items={"a": ["x"]}), "INVALID_ARGUMENT", "need the collection"),
        (Examples(collection="nowhere", label_key="kind"), "NOT_FOUND", "nowhere"),
        (Examples(images=SHOWN, rule="nearest"), "INVALID_ARGUMENT", "prototype, knn"),  # type: ignore[arg-type]
        (Examples(images=SHOWN, collection="pets"), "INVALID_ARGUMENT", "the collection is of no use"),
        (Examples(images=SHOWN, k=3), "INVALID_ARGUMENT", "k is for rule knn"),
        (Examples(images=SHOWN, rule="knn", text_weight=0.5), "INVALID_ARGUMENT", "text_weight is for rule prototype"),
        (Examples(images=SHOWN, rule="knn", k=10_001), "INVALID_ARGUMENT", "k is from 0 to 10000"),
        (Examples(images=SHOWN, rule="knn", k=2.5), "INVALID_ARGUMENT", "numbers"),  # type: ignore[arg-type]
        (Examples(images=SHOWN, temperature="low"), "INVALID_ARGUMENT", "numbers"),  # type: ignore[arg-type]
        (Examples(images=SHOWN, temperature=0.0), "INVALID_ARGUMENT", "temperature"),
        (Examples(images=SHOWN, text_weight=2.0), "INVALID_ARGUMENT", "text_weight"),
    ],
)
def test_examples_of_no_use_end_in_one_line(client: Any, given: Any, code: str, said: str) -> None:
    with pytest.raises(TwinlensError) as caught:
        client.classify([solid("red")], examples=given)
    assert caught.value.code == code
    assert said in caught.value.message


def test_an_item_that_is_not_there_is_named(client: Any, labelled: str) -> None:
    examples = Examples(items={"warm": ["warm/0", "nobody", "no one"]}, collection=labelled)
    with pytest.raises(
        TwinlensError, match=r"an example of label 'warm' cannot be used: .*nobody.* \(and 1 more\)"
    ) as e:
        client.classify([solid("red")], examples=examples)
    assert e.value.code == "NOT_FOUND"


def test_labels_in_words_and_examples_exclude_each_other(client: Any) -> None:
    with pytest.raises(TwinlensError, match="not both"):
        client.classify([solid("red")], ["red"], examples=SHOWN)
    with pytest.raises(TwinlensError, match="in one way"):
        client.classify([solid("red")])
    with pytest.raises(TwinlensError, match="multi_label"):
        client.classify([solid("red")], examples=SHOWN, multi_label=True)
    with pytest.raises(TypeError, match="put it in brackets"):
        client.classify([solid("red")], examples={"a": "red.png"})


class Server:
    """Answers as a server does whose vectors tell the length of a picture."""

    def __init__(self, dimension: int = 1) -> None:
        self.dimension = dimension

    def __call__(self, call: calls.Call) -> Any:
        if isinstance(call.request, embedding_pb2.EmbedRequest):
            results = [
                embedding_pb2.EmbedResult(embedding=content_pb2.Vector(values=[len(each.image)] * self.dimension))
                for each in call.request.inputs
            ]
            model = content_pb2.ModelInfo(dimension=self.dimension, space_id="space")
            return embedding_pb2.EmbedResponse(model=model, results=results)
        assert isinstance(call.request, classification_pb2.ClassifyRequest)
        score = classification_pb2.LabelScore(label="a", probability=1)
        results_of = [classification_pb2.ClassifyResult(scores=[score]) for _ in call.request.images]
        return classification_pb2.ClassifyResponse(results=results_of)


def plan(images: list[bytes], examples: Any, *, labels: Any = (), top_k: int = 0) -> Any:
    chosen = classify_calls.setup(
        labels, examples, label_set="", templates=None, top_k=top_k, multi_label=False, none_of_these=None
    )
    return classify_calls.classify(images, chosen)


def test_examples_are_embedded_once_and_their_vectors_go_with_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (calls, classify_calls):
        monkeypatch.setattr(module, "MAX_INPUTS", 2)
    results, made = carry_out(plan([b"1", b"2", b"3"], {"a": [b"12", b"1234"], "b": [b"123"]}), Server())
    assert [call.method for call in made] == ["Embed", "Embed", "Classify", "Classify"]
    assert [result.scores[0].label for result in results] == ["a"] * 3
    for call in made[2:]:
        request = call.request
        assert isinstance(request, classification_pb2.ClassifyRequest)
        assert [(e.label, list(e.vector.values)) for e in request.examples.examples] == [
            ("a", [2]),
            ("a", [4]),
            ("b", [3]),
        ]
        assert not request.examples.HasField("temperature")
        assert request.examples.space_id == "space"  # so that a server with another model refuses them


def test_as_many_labels_as_there_may_be_mean_fewer_pictures_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classify_calls, "MAX_SCORES", 4)

    def sizes(examples: Any, top_k: int = 0) -> list[int]:
        _, made = carry_out(plan([b"1", b"2", b"3"], examples, top_k=top_k), Server())
        return [len(call.request.images) for call in made if call.method == "Classify"]  # type: ignore[union-attr]

    assert sizes({"a": [b"1"], "b": [b"2"]}) == [2, 1]
    assert sizes(Examples(collection="c", label_key="k")) == [1, 1, 1]
    assert sizes(Examples(collection="c", label_key="k"), top_k=1) == [3]


def test_long_labels_mean_fewer_pictures_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classify_calls, "MAX_ANSWERED_LABEL_BYTES", 200)

    def sizes(examples: Any, labels: Any = (), top_k: int = 0) -> list[int]:
        made = carry_out(plan([b"1", b"2", b"3"], examples, labels=labels, top_k=top_k), Server())[1]
        return [len(call.request.images) for call in made if call.method == "Classify"]  # type: ignore[union-attr]

    assert sizes({"a" * 60: [b"1"], "b" * 40: [b"2"]}) == [2, 1]
    assert sizes({"a" * 60: [b"1"], "b" * 40: [b"2"]}, top_k=1) == [3]
    assert sizes(None, ["ä" * 75, "b", "c"]) == [1, 1, 1]
    assert sizes(None, ["a", "b", "c"]) == [3]


@pytest.mark.parametrize(
    "examples",
    [
        Examples(images={"a": [b"1"], " ": [b"1"]}),
        Examples(images={"ä" * 513: [b"1"]}),
        Examples(images={"a": [b"1"]}, temperature=0.0),
        Examples(images={"a": [b"1"]}, items={"a": ["half \ud800"]}, collection="c"),
        Examples(images={"a": [b"1"] * 9_000, "b": [b"1"] * 1_001}),
        Examples(images={"a": [b"1"] * 9_000}, items={"a": ["x"] * 1_001}, collection="c"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_example_is_embedded(examples: Examples) -> None:
    with pytest.raises(TwinlensError) as caught:
        next(example_calls.prepare(examples))  # its first call, were there one
    assert caught.value.code == "INVALID_ARGUMENT"


def test_a_server_that_fails_on_an_example_is_not_the_examples_fault() -> None:
    def failing(call: calls.Call) -> Any:
        assert isinstance(call.request, embedding_pb2.EmbedRequest)
        error = content_pb2.ItemError(reason=content_pb2.ERROR_REASON_INTERNAL, message="see the log")
        good = embedding_pb2.EmbedResult(embedding=content_pb2.Vector(values=[1.0]))
        model = content_pb2.ModelInfo(dimension=1, space_id="space")
        return embedding_pb2.EmbedResponse(model=model, results=[good, embedding_pb2.EmbedResult(error=error)])

    with pytest.raises(TwinlensError, match="see the log") as caught:
        carry_out(example_calls.prepare({"a": [b"1", b"2"]}), failing)
    assert caught.value.code == "INTERNAL"


def test_more_examples_than_can_be_sent_are_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TwinlensError, match="store them in a collection"):
        carry_out(plan([b"1"], {"a": iter([b"1"] * 10_001)}), Server())
    monkeypatch.setattr(classify_calls, "MAX_IMAGE_BYTES", calls.MAX_BYTES + 5000)
    with pytest.raises(TwinlensError, match="store them in a collection"):
        carry_out(plan([b"1"], {"a": [b"1"] * 2}), Server(dimension=1000))


def test_a_picture_that_does_not_fit_beside_the_examples_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classify_calls, "MAX_BYTES", 1000)
    monkeypatch.setattr(classify_calls, "MAX_IMAGE_BYTES", 6000)
    results, _ = carry_out(plan([b"1", b"1" * 5500], {"a": [b"1"]}), Server(dimension=1000))
    assert results[0].error is None
    assert "do not fit" in str(results[1].error)
