from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest

from tests.server.running import Running, picture, run_server
from tests.server.watched import WatchedEncoder
from twinlens.encoders.manifest import ScoringRule
from twinlens.server.core.errors import ServiceError
from twinlens.server.core.label_scorer import LabelRoom
from twinlens.server.core.labels import fill
from twinlens.server.core.scoring import probabilities
from twinlens.v1 import classification_pb2, content_pb2

COLOURS = ["red", "green", "blue"]


async def classify(served: Running, *images: bytes, **options: Any) -> classification_pb2.ClassifyResponse:
    request = {"labels": COLOURS, **options}
    return await served.classification.Classify(classification_pb2.ClassifyRequest(images=images, **request))


async def test_pictures_get_the_label_they_show_best_first(served: Running) -> None:
    reply = await classify(served, picture("blue"), picture("red"))
    assert [result.scores[0].label for result in reply.results] == ["blue", "red"]
    for result in reply.results:
        assert sorted(score.label for score in result.scores) == sorted(COLOURS)
        cosines = [score.cosine for score in result.scores]
        assert cosines == sorted(cosines, reverse=True)
        assert sum(score.probability for score in result.scores) == pytest.approx(1.0, abs=1e-5)


async def test_cosines_are_of_the_picture_and_the_normalised_mean_of_unit_prompt_vectors(served: Running) -> None:
    templates = ["a photo of {}", "{} on a wall", "the {} {}"]
    reply = await classify(served, picture("red"), templates=templates)
    prompts = ["a photo of red", "red on a wall", "the red {}"]
    embedded = await served.embed(picture("red"), *prompts)
    image, *texts = [np.asarray(result.embedding.values) for result in embedded.results]
    mean = np.mean(texts, axis=0)
    expected = float(image @ mean / np.linalg.norm(mean))
    assert reply.results[0].scores[0].label == "red"
    assert reply.results[0].scores[0].cosine == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("template", ["{} on a wall", "{x} and {} and {} and {{}}", "%s {} \\{}"])
async def test_braces_in_labels_and_templates_stay_as_they_are(served: Running, template: str) -> None:
    labels = ["a set {}", "{0} red", "{blue}", "{", "}{"]
    reply = await classify(served, picture("red"), labels=labels, templates=[template])
    before, _, after = template.partition("{}")
    embedded = await served.embed(picture("red"), *(f"{before}{label}{after}" for label in labels))
    image, *texts = [np.asarray(result.embedding.values) for result in embedded.results]
    told = {score.label: score.cosine for score in reply.results[0].scores}
    assert told == {
        label: pytest.approx(float(image @ text), abs=1e-5) for label, text in zip(labels, texts, strict=True)
    }


async def test_labels_whose_prompts_were_cut_say_so(served: Running) -> None:
    long = "red " * 40
    reply = await classify(served, picture("red"), picture("blue"), labels=["red", long, "blue"])
    for result in reply.results:
        assert {score.label: score.truncated for score in result.scores} == {"red": False, long: True, "blue": False}
    # Told from the cache as well, and for whichever of the prompts it is.
    again = await classify(served, picture("red"), labels=["red", long, "blue"], top_k=1)
    assert again.results[0].scores[0].truncated == (again.results[0].scores[0].label == long)
    reply = await classify(served, picture("red"), labels=["red"], templates=["{}", "{} " + long])
    assert reply.results[0].scores[0].truncated


async def test_probabilities_follow_the_models_own_rule(served: Running) -> None:
    scores = (await classify(served, picture("red"))).results[0].scores
    cosines = np.array([score.cosine for score in scores])
    expected = np.exp(20.0 * cosines) / np.exp(20.0 * cosines).sum()
    np.testing.assert_allclose([score.probability for score in scores], expected, atol=1e-4)


async def test_judged_on_its_own_a_label_does_not_depend_on_the_others(served: Running) -> None:
    alone = (await classify(served, picture("red"), labels=["red"], multi_label=True)).results[0].scores
    among = (await classify(served, picture("red"), multi_label=True)).results[0].scores
    assert alone[0].probability == pytest.approx(among[0].probability, abs=1e-6)
    image, neutral = [
        np.asarray(result.embedding.values)
        for result in (await served.embed(picture("red"), "a photo of a thing.")).results
    ]
    for score in among:
        expected = 1 / (1 + np.exp(-20.0 * (score.cosine - float(image @ neutral))))
        assert score.probability == pytest.approx(expected, abs=1e-5)


async def test_scores_do_not_depend_on_how_many_pictures_are_scored_at_a_time(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = [picture(colour) for colour in COLOURS]
    pictures.insert(1, b"not a picture")
    whole = await classify(served, *pictures, top_k=2)
    monkeypatch.setattr("twinlens.server.core.label_scorer._BLOCK", 1)
    assert await classify(served, *pictures, top_k=2) == whole


async def test_top_k_cuts_the_labels(served: Running) -> None:
    for top_k, count in ((1, 1), (2, 2), (0, 3), (9, 3)):
        assert len((await classify(served, picture("red"), top_k=top_k)).results[0].scores) == count


async def test_one_bad_picture_fails_alone(served: Running) -> None:
    reply = await classify(served, b"not a picture", picture("green"))
    assert reply.results[0].error.reason == content_pb2.ERROR_REASON_INVALID_IMAGE
    assert not reply.results[0].scores
    assert reply.results[1].scores[0].label == "green"


@pytest.mark.parametrize(
    "change",
    [
        {"labels": []},
        {"labels": ["red", "red"]},
        {"labels": ["red", ""]},
        {"labels": [str(i) for i in range(10_001)]},
        {"templates": ["a photo of a label"]},
        {"templates": ["a photo of {label}"]},
        {"templates": ["{}"] * 257},
        {"labels": ["red", "ä" * 513]},
        {"templates": ["{}" + "x" * 1023]},
        {"top_k": -1},
    ],
)
async def test_labels_that_cannot_be_meant_are_refused(served: Running, change: dict[str, Any]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await classify(served, picture("red"), **change)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_more_scores_than_a_reply_can_hold_are_refused_with_the_way_out(served: Running) -> None:
    labels = [f"label {i}" for i in range(1000)]
    images = [picture("red", 2)] * 1001
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await classify(served, *images, labels=labels)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "top_k" in (caught.value.details() or "")


async def test_labels_that_no_reply_could_hold_are_refused_before_anything_is_embedded(data: Any) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, max_message_bytes=2**20) as served:
        encoder.text_batches.clear()
        labels = [f"{i:04d}" * 256 for i in range(50)]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await classify(served, *[picture("red", 2)] * 21, labels=labels)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "shorten the labels" in (caught.value.details() or "")
        assert not encoder.text_batches
        reply = await classify(served, *[picture("red", 2)] * 100, labels=labels, top_k=10)
        assert all(len(result.scores) == 10 for result in reply.results)


def test_what_a_reply_may_take_is_never_less_than_what_it_takes() -> None:
    rng = np.random.default_rng(3)
    for pictures, top_k in ((1, 0), (7, 3), (40, 0)):
        labels = ["x" * size for size in rng.integers(1, 1025, 30).tolist()]
        longest = sorted(labels, key=len, reverse=True)[: top_k or None]
        scores = [
            classification_pb2.LabelScore(label=label, cosine=0.5, probability=0.5, truncated=True) for label in longest
        ]
        results = [
            classification_pb2.ClassifyResult(
                scores=scores, none_of_these=True, background_cosine=0.5, background_probability=0.5
            )
        ] * pictures
        size = classification_pb2.ClassifyResponse(results=results).ByteSize()
        with pytest.raises(ServiceError, match="may make a reply"):
            LabelRoom(labels, top_k, size - 6 * pictures).check(pictures)  # what introduces a result is not counted
        enough = LabelRoom(labels, top_k, size + 10 * 30 * pictures)
        enough.check(pictures)
        assert enough.keep == len(longest)


@pytest.mark.parametrize("count", [0, 1025])
async def test_too_few_and_too_many_pictures_are_refused(served: Running, count: int) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await classify(served, *[picture("red", 2)] * count)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_label_vectors_are_embedded_once(data: Any) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.text_batches.clear()
        await classify(served, picture("red"))
        embedded = sum(encoder.text_batches)
        await classify(served, picture("blue"))
        assert sum(encoder.text_batches) == embedded == len(COLOURS) + 1
        await classify(served, picture("blue"), templates=["{}"])
        assert sum(encoder.text_batches) == 2 * embedded


async def test_a_broken_encoder_is_an_internal_error_without_its_words(data: Any) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.broken = RuntimeError("secret")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await classify(served, picture("red"))
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert "secret" not in (caught.value.details() or "")
        encoder.broken = None
        assert (await classify(served, picture("red"))).results[0].scores[0].label == "red"


def test_a_label_may_hold_braces() -> None:
    assert fill("a {} of {}", "{set}") == "a {set} of {}"
    assert fill("{}", "{}") == "{}"


def test_a_sigmoid_model_judges_each_label_on_its_own() -> None:
    rule = ScoringRule(rule="sigmoid", scale=10.0, bias=-2.0)
    cosines = np.array([[0.3, 0.1], [-0.5, 0.9]])
    expected = 1 / (1 + np.exp(-(10.0 * cosines - 2.0)))
    for multi_label in (False, True):
        np.testing.assert_allclose(probabilities(rule, cosines, multi_label=multi_label), expected, rtol=1e-12)


def test_extreme_scales_give_probabilities_and_no_overflow() -> None:
    cosines = np.array([[1.0, -1.0, 0.0]])
    for rule in ("softmax", "sigmoid"):
        got = probabilities(ScoringRule(rule=rule, scale=1e4), cosines, multi_label=False)
        assert np.isfinite(got).all()
        assert got.min() >= 0
        assert got.max() <= 1
