"""Labelling by pictures whose labels are known, against slow transcriptions of the rules."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.server.running import Running, picture, run_server
from tests.server.shown_examples import (
    ASKED,
    KNN,
    SHOWN,
    Shown,
    classify,
    embedded,
    example_set,
    noisy,
    refusal,
    vectors_of,
)
from tests.server.watched import WatchedEncoder
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Picture
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.example_scoring import ExampleRule
from twinlens.server.services import example_set as example_sets
from twinlens.v1 import classification_pb2 as pb
from twinlens.v1 import collection_pb2, content_pb2


def by_prototypes(
    picture_vector: NDArray[np.float64], shown: Mapping[str, NDArray[np.float64]], temperature: float
) -> list[tuple[str, float, float]]:
    """Label, cosine and probability, best first: the mean of unit vectors, normalised, and a softmax."""
    cosines = {}
    for label, vectors in shown.items():
        mean = sum(vectors[1:], start=vectors[0]) / len(vectors)
        cosines[label] = float(picture_vector @ mean / math.sqrt(float(mean @ mean)))
    total = sum(math.exp(cosine / temperature) for cosine in cosines.values())
    return sorted(
        ((label, cosine, math.exp(cosine / temperature) / total) for label, cosine in cosines.items()),
        key=lambda row: -row[1],
    )


def by_neighbours(
    picture_vector: NDArray[np.float64], shown: Mapping[str, NDArray[np.float64]], k: int, temperature: float
) -> list[tuple[str, float, float]]:
    """Label, cosine of its nearest example, and share of the votes (Wu et al. 2018, section 3.4), best first."""
    near = [(float(picture_vector @ vector), label) for label, vectors in shown.items() for vector in vectors]
    weights = dict.fromkeys(shown, 0.0)
    for cosine, label in sorted(near, key=lambda pair: -pair[0])[:k]:
        weights[label] += math.exp(cosine / temperature)
    total = sum(weights.values())
    best = {label: max(cosine for cosine, of in near if of == label) for label in shown}
    return sorted(((label, best[label], weights[label] / total) for label in shown), key=lambda row: (-row[2], -row[1]))


def assert_scores(result: pb.ClassifyResult, expected: Sequence[tuple[str, float, float]]) -> None:
    assert [score.label for score in result.scores] == [label for label, _, _ in expected]
    np.testing.assert_allclose([s.cosine for s in result.scores], [c for _, c, _ in expected], atol=2e-6)
    np.testing.assert_allclose([s.probability for s in result.scores], [p for _, _, p in expected], atol=1e-4)
    assert sum(s.probability for s in result.scores) == pytest.approx(1, abs=1e-5)
    assert not any(s.truncated for s in result.scores)


@pytest.mark.parametrize("temperature", [None, 0.02, 1.0])
async def test_prototypes_score_as_their_equations_say(served: Running, temperature: float | None) -> None:
    reply = await classify(served, example_set(temperature=temperature))
    shown = await embedded(served)
    for vector, result in zip(await vectors_of(served, ASKED), reply.results, strict=True):
        assert_scores(result, by_prototypes(vector, shown, temperature or 0.07))
    assert reply.examples == pb.ExampleReport(label_count=3, used_count=11)
    assert reply.model.name == "fake"


@pytest.mark.parametrize(("k", "temperature"), [(1, None), (4, 0.07), (4, 1.0), (0, None), (10_000, 0.5)])
async def test_neighbours_vote_as_their_equation_says(served: Running, k: int, temperature: float | None) -> None:
    reply = await classify(served, example_set(rule=KNN, k=k, temperature=temperature))
    shown = await embedded(served)
    for vector, result in zip(await vectors_of(served, ASKED), reply.results, strict=True):
        assert_scores(result, by_neighbours(vector, shown, k or 20, temperature or 0.07))
    if k == 1:
        assert [score.probability for score in reply.results[0].scores] == [1.0, 0.0, 0.0]


async def test_a_picture_gets_the_label_of_what_it_looks_like(served: Running) -> None:
    for rule in (pb.EXAMPLE_RULE_PROTOTYPE, KNN):
        reply = await classify(
            served, example_set(rule=rule, k=3 if rule == KNN else 0), noisy(255, 40, 30, 99), noisy(20, 40, 255, 99)
        )
        assert [result.scores[0].label for result in reply.results] == ["warm", "cold"]
        assert all(result.scores[0].probability > 0.6 for result in reply.results)


@pytest.mark.parametrize("rule", [pb.EXAMPLE_RULE_PROTOTYPE, KNN])
async def test_scores_do_not_depend_on_how_many_pictures_are_scored_at_a_time(
    served: Running, monkeypatch: pytest.MonkeyPatch, rule: Any
) -> None:
    asked = [*ASKED[:2], b"not a picture", *ASKED[2:]]
    whole = await classify(served, example_set(rule=rule), *asked, top_k=2)
    monkeypatch.setattr("twinlens.server.core.label_scorer._BLOCK", 1)
    again = await classify(served, example_set(rule=rule), *asked, top_k=2)
    assert whole.results[2].error.reason == content_pb2.ERROR_REASON_INVALID_IMAGE
    for one, other in zip(whole.results, again.results, strict=True):
        assert [s.label for s in one.scores] == [s.label for s in other.scores]
        assert [s.cosine for s in one.scores] == pytest.approx([s.cosine for s in other.scores], abs=1e-6)


@pytest.mark.parametrize("rule", [pb.EXAMPLE_RULE_PROTOTYPE, KNN])
async def test_pictures_items_vectors_and_labelled_collections_are_the_same_examples(
    served: Running, rule: Any
) -> None:
    await store(served, SHOWN, key="kind")
    by_picture = await classify(served, example_set(rule=rule))
    vectors = await embedded(served)
    of_items, of_vectors = (pb.ExampleSet(collection="photos", rule=rule), pb.ExampleSet(rule=rule))
    for label, images in SHOWN.items():
        for i in range(len(images)):
            of_items.examples.append(pb.Example(label=label, item_id=f"{label}/{i}"))
            scaled = content_pb2.Vector(values=(7 * vectors[label][i]).tolist())
            of_vectors.examples.append(pb.Example(label=label, vector=scaled))
    by_collection = pb.ExampleSet(collection="photos", label_key="kind", rule=rule)
    mixed = pb.ExampleSet(examples=[*of_vectors.examples[:4], *example_set().examples[4:7]], rule=rule)
    mixed.examples.extend(of_items.examples[7:])
    mixed.collection = "photos"
    for examples in (of_items, of_vectors, by_collection, mixed):
        reply = await classify(served, examples)
        assert (reply.examples.label_count, reply.examples.used_count) == (3, 11)
        for one, other in zip(reply.results, by_picture.results, strict=True):
            assert [s.label for s in one.scores] == [s.label for s in other.scores]
            assert [s.cosine for s in one.scores] == pytest.approx([s.cosine for s in other.scores], abs=2e-6)
            assert [s.probability for s in one.scores] == pytest.approx([s.probability for s in other.scores], abs=1e-4)


async def store(served: Running, shown: Shown, *, key: str) -> None:
    await served.create()
    for label, images in shown.items():
        items = []
        for i, image in enumerate(images):
            item = collection_pb2.NewItem(id=f"{label}/{i}", image=image)
            item.metadata.update({key: label})
            items.append(item)
        assert (await served.upsert(*items)).stored_count == len(items)


async def test_items_without_a_label_are_counted_and_left_out(served: Running) -> None:
    await store(served, {"a": [picture("red")], "b": [picture("blue")]}, key="kind")
    for i, value in enumerate([None, "", "  ", True, 2.5, ["a"], {"a": 1}, 7]):
        item = collection_pb2.NewItem(id=f"odd/{i}", image=picture("green"))
        item.metadata.update({"kind": value})
        await served.upsert(item)
    await served.upsert(collection_pb2.NewItem(id="none", image=picture("green")))
    await served.upsert(collection_pb2.NewItem(id="words", caption="a green square"))
    reply = await classify(served, pb.ExampleSet(collection="photos", label_key="kind"), picture("green"))
    assert (reply.examples.label_count, reply.examples.used_count, reply.examples.unlabelled_count) == (3, 3, 8)
    assert reply.results[0].scores[0].label == "7"


async def test_what_is_stored_replaced_or_deleted_counts_at_once(served: Running) -> None:
    await store(served, {"a": [picture("red")], "b": [picture("blue")]}, key="kind")
    examples = pb.ExampleSet(collection="photos", label_key="kind")

    async def best() -> str:
        return (await classify(served, examples, picture("red"))).results[0].scores[0].label

    assert await best() == "a"
    item = collection_pb2.NewItem(id="a/0", image=picture("red"))
    item.metadata.update({"kind": "b"})
    await served.upsert(item)
    assert await best() == "b"
    other = collection_pb2.NewItem(id="c/0", image=picture("red"))
    other.metadata.update({"kind": "c"})
    await served.upsert(other)
    assert await best() == "c"
    await served.collections.DeleteItems(collection_pb2.DeleteItemsRequest(collection="photos", ids=["c/0"]))
    assert await best() == "b"


async def test_other_keys_are_other_labels(served: Running) -> None:
    await served.create()
    item = collection_pb2.NewItem(id="a", image=picture("red"))
    item.metadata.update({"kind": "warm", "breed": "tabby"})
    await served.upsert(item)
    for key, label in (("kind", "warm"), ("breed", "tabby")):
        reply = await classify(served, pb.ExampleSet(collection="photos", label_key=key), picture("red"))
        assert [score.label for score in reply.results[0].scores] == [label]


async def test_an_example_that_cannot_be_used_is_named_and_the_others_are_used(served: Running) -> None:
    await served.create()
    good = example_set()
    given = pb.ExampleSet(collection="photos", rule=KNN)
    given.examples.extend(good.examples[:3])
    bad = [
        (pb.Example(label="warm", image=b"not a picture"), content_pb2.ERROR_REASON_INVALID_IMAGE),
        (pb.Example(label="warm", image=b""), content_pb2.ERROR_REASON_INVALID_IMAGE),
        (pb.Example(label="warm"), content_pb2.ERROR_REASON_INVALID_INPUT),
        (pb.Example(label="cold", item_id="nobody"), content_pb2.ERROR_REASON_NOT_FOUND),
        (pb.Example(label="cold", item_id=""), content_pb2.ERROR_REASON_INVALID_INPUT),
        (pb.Example(label="cold", vector=content_pb2.Vector(values=[1.0])), content_pb2.ERROR_REASON_INVALID_VECTOR),
    ]
    given.examples.extend(example for example, _ in bad)
    given.examples.extend(good.examples[3:])
    reply = await classify(served, given)
    assert [failure.error.reason for failure in reply.examples.failures] == [reason for _, reason in bad]
    assert [failure.position for failure in reply.examples.failures] == list(range(3, 9))
    assert [failure.label for failure in reply.examples.failures] == ["warm"] * 3 + ["cold"] * 3
    assert all(failure.error.message for failure in reply.examples.failures)
    assert reply.examples.used_count == 11
    assert reply.results == (await classify(served, example_set(rule=KNN))).results
    assert (await classify(served, given)).examples == reply.examples  # from the cache as well


async def test_a_label_of_which_no_example_is_left_fails_the_request(served: Running) -> None:
    examples = example_set({"warm": SHOWN["warm"], "gone": [b"broken", b""]})
    code, details = await refusal(served, examples)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "label 'gone' has no example that can be used: this is not a picture" in details


async def test_an_item_without_a_collection_says_what_is_missing(served: Running) -> None:
    _, details = await refusal(served, pb.ExampleSet(examples=[pb.Example(label="a", item_id="x")]))
    assert "no collection is named" in details


async def test_examples_are_embedded_once(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.image_batches.clear()
        await classify(served, example_set(), ASKED[0])
        assert sum(encoder.image_batches) == 11 + 1
        await classify(served, example_set(temperature=1.0), *ASKED[:2])
        assert sum(encoder.image_batches) == 11 + 1 + 2
        for i, other in enumerate(({"other": [ASKED[0]]}, {"other": [ASKED[1]]}), 1):
            await classify(served, example_set(other), ASKED[0])
            assert sum(encoder.image_batches) == 11 + 1 + 2 + 2 * i


async def test_examples_are_made_for_all_who_wait_and_so_without_the_deadline_of_one(served: Running) -> None:
    late = Call(deadline_s=0.0)
    source = example_sets.source(example_set(), None)
    with pytest.raises(ServiceError) as caught:
        await served.app.engine.embed([Picture(ASKED[0])], late)
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    assert (await served.app.examples.get(source, ExampleRule.KNN, late)).used == 11


async def test_pictures_of_examples_count_in_what_is_in_flight(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, max_bytes_in_flight=2**20) as served:
        encoder.hold()
        large = example_set({"large": [picture("red") + bytes(600_000)]})
        first = asyncio.create_task(classify(served, large, ASKED[0]))
        await encoder.entered()
        assert served.app.admission.items == 2
        code, _ = await refusal(served, large, ASKED[0])
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        encoder.release()
        assert (await first).examples.used_count == 1


async def test_what_cannot_be_meant_is_refused_before_any_example_is_embedded(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        await asyncio.to_thread(served.app.catalog.create, "moved", space_id="another", dimension=32)
        encoder.image_batches.clear()
        _, details = await refusal(served, example_set({**SHOWN, " ": [picture("red")]}))
        assert "example 11 has an empty label" in details
        _, details = await refusal(served, example_set(text_weight=0.5), templates=["no place"])
        assert "no place" in details
        code, details = await refusal(served, example_set(collection="moved", label_key="kind"))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "collection moved belongs to another space than the model; `twinlens reindex`" in details
        assert not encoder.image_batches


async def test_long_labels_count_in_what_is_kept(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, example_cache_bytes=1_000) as served:
        for label, embedded_again in (("short", False), ("long" * 250, True)):
            examples = example_set({label: [picture("red")]})
            await classify(served, examples, ASKED[0])
            encoder.image_batches.clear()
            await classify(served, examples, ASKED[0])
            assert (sum(encoder.image_batches) == 2) is embedded_again


async def test_an_encoder_that_fails_on_an_example_is_the_servers_fault_and_is_not_kept(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.broken = RuntimeError("secret")
        code, details = await refusal(served, example_set())
        assert code is grpc.StatusCode.INTERNAL
        assert "secret" not in details
        encoder.broken = None
        assert (await classify(served, example_set())).examples.used_count == 11


@pytest.mark.parametrize("weight", [0.25, 1.0])
async def test_the_text_of_a_label_is_mixed_into_its_prototype(served: Running, weight: float) -> None:
    shown: Shown = {"red": [picture("red"), picture("yellow")], "blue": [picture("blue")]}
    templates = ["a {} wall", "{}"]
    reply = await classify(served, example_set(shown, text_weight=weight), *ASKED, templates=templates)
    mixed = {}
    for label, vectors in (await embedded(served, shown)).items():
        texts = await served.embed(*(template.replace("{}", label) for template in templates))
        text = np.sum([np.array(result.embedding.values, dtype=np.float64) for result in texts.results], axis=0)
        prototype = vectors.sum(axis=0)
        unit = [each / np.linalg.norm(each) for each in (prototype, text)]
        mixed[label] = ((1 - weight) * unit[0] + weight * unit[1])[None]
    for vector, result in zip(await vectors_of(served, ASKED), reply.results, strict=True):
        assert_scores(result, by_prototypes(vector, mixed, 0.07))


async def test_a_mixed_label_whose_prompt_was_cut_says_so(served: Running) -> None:
    long = "red " * 40
    examples = example_set({long: [picture("red")], "blue": [picture("blue")]}, text_weight=0.5)
    (result,) = (await classify(served, examples, picture("red"))).results
    assert {score.label: score.truncated for score in result.scores} == {long: True, "blue": False}


@pytest.mark.parametrize("rule", [pb.EXAMPLE_RULE_PROTOTYPE, KNN])
async def test_top_k_cuts_the_labels(served: Running, rule: Any) -> None:
    for top_k, count in ((1, 1), (2, 2), (0, 3), (9, 3)):
        reply = await classify(served, example_set(rule=rule), ASKED[0], top_k=top_k)
        assert len(reply.results[0].scores) == count


async def test_a_model_of_pictures_alone_labels_by_examples_and_says_why_not_by_words(data: Path) -> None:
    async with run_server(data, FakeEncoder(text=False)) as served:
        for rule in (pb.EXAMPLE_RULE_PROTOTYPE, KNN):
            reply = await classify(served, example_set(rule=rule), noisy(255, 40, 30, 99))
            assert reply.results[0].scores[0].label == "warm"
            assert not reply.model.has_text_tower
        code, details = await refusal(served, example_set(text_weight=0.5))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "no text tower" in details
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.classification.Classify(pb.ClassifyRequest(images=ASKED, labels=["red", "blue"]))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        for part in ("fake/1", "no text tower", "examples", "use a bundle that has one"):
            assert part in (caught.value.details() or "")


async def test_a_model_of_texts_alone_labels_nothing(data: Path) -> None:
    async with run_server(data, FakeEncoder(image=False)) as served:
        code, details = await refusal(served, example_set())
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "no image tower" in details
