"""When a picture shows none of the labels: thresholds and background prompts, against slow transcriptions."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from tests.server.running import Running, picture, refusal, run_server
from tests.server.shown_examples import KNN, example_set
from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import COLOURS
from twinlens.encoders.manifest import Manifest, ScoringRule
from twinlens.v1 import classification_pb2 as pb

LABELS = ["red", "green", "blue"]
BACKGROUND = ["a yellow wall", "nothing at all"]


async def classify(served: Running, *images: bytes, **options: Any) -> list[pb.ClassifyResult]:
    none = pb.NoneOfThese(**options.pop("none", {}))
    request = pb.ClassifyRequest(images=images, **{"labels": LABELS, **options}, none_of_these=none)
    return list((await served.classification.Classify(request)).results)


async def cosines(served: Running, image: bytes, prompts: list[str]) -> list[float]:
    """By the vectors that are told, one product at a time."""
    embedded = (await served.embed(image, *prompts)).results
    first, *others = [list(result.embedding.values) for result in embedded]
    return [math.fsum(a * b for a, b in zip(first, other, strict=True)) for other in others]


async def test_thresholds_hold_for_the_best_label_and_hide_nothing(served: Running) -> None:
    for colour in ("red", "yellow"):
        (plain,) = await classify(served, picture(colour))
        best = plain.scores[0]
        assert not plain.none_of_these
        for name in ("cosine", "probability"):
            at = getattr(best, name)
            above = float(np.nextafter(np.float32(at), np.float32(2)))
            for threshold, none in ((at, False), (above, True)):
                if threshold > 1:
                    continue
                (result,) = await classify(served, picture(colour), none={f"min_{name}": threshold})
                assert result.none_of_these is none
                assert result.scores == plain.scores
                assert not result.HasField("background_cosine")


async def test_each_condition_must_hold(served: Running) -> None:
    (plain,) = await classify(served, picture("red"))
    best = plain.scores[0]
    for cosine, probability, none in (
        (best.cosine, best.probability, False),
        (-1.0, 1.0, best.probability < 1.0),
        (1.0, 0.0, best.cosine < 1.0),
    ):
        conditions = {"min_cosine": cosine, "min_probability": probability}
        (result,) = await classify(served, picture("red"), none=conditions)
        assert result.none_of_these is none


async def test_thresholds_judge_the_best_of_all_labels_whatever_top_k_is(served: Running) -> None:
    for top_k in (0, 1, 2):
        results = await classify(served, picture("red"), picture("yellow"), top_k=top_k, none={"min_cosine": 0.5})
        assert [result.none_of_these for result in results] == [False, True]


async def test_background_prompts_compete_with_the_labels_of_a_softmax_model(served: Running) -> None:
    for colour in ("red", "yellow", "black"):
        (result,) = await classify(served, picture(colour), none={"background_prompts": BACKGROUND})
        prompts = [f"a photo of a {label}." for label in LABELS]
        *labels, wall, nothing = await cosines(served, picture(colour), [*prompts, *BACKGROUND])
        weights = [math.exp(20.0 * each) for each in (*labels, wall, nothing)]
        told = {score.label: score for score in result.scores}
        for label, cosine, weight in zip(LABELS, labels, weights, strict=False):
            assert told[label].cosine == pytest.approx(cosine, abs=1e-5)
            assert told[label].probability == pytest.approx(weight / sum(weights), abs=1e-4)
        assert result.background_cosine == pytest.approx(max(wall, nothing), abs=1e-5)
        assert result.background_probability == pytest.approx(sum(weights[3:]) / sum(weights), abs=1e-4)
        everything = sum(score.probability for score in result.scores) + result.background_probability
        assert everything == pytest.approx(1.0, abs=1e-5)
        assert result.none_of_these == (max(labels) <= max(wall, nothing)) == (colour == "yellow")


async def test_judged_on_its_own_a_labels_probability_knows_no_background(served: Running) -> None:
    (without,) = await classify(served, picture("yellow"), multi_label=True)
    (beside,) = await classify(served, picture("yellow"), multi_label=True, none={"background_prompts": BACKGROUND})
    for one, other in zip(without.scores, beside.scores, strict=True):
        assert one.label == other.label
        assert one.cosine == pytest.approx(other.cosine, abs=1e-6)
        assert one.probability == pytest.approx(other.probability, abs=1e-6)
    assert beside.none_of_these
    assert beside.HasField("background_cosine")
    assert not beside.HasField("background_probability")


class SigmoidEncoder(FakeEncoder):
    """A model that judges each label on its own, always."""

    @property
    def manifest(self) -> Manifest:
        return super().manifest.model_copy(update={"scoring": ScoringRule(rule="sigmoid", scale=10.0, bias=-5.0)})


@pytest_asyncio.fixture
async def sigmoid(data: Path) -> AsyncIterator[Running]:
    async with run_server(data, SigmoidEncoder()) as running:
        yield running


async def test_a_sigmoid_model_has_no_probability_of_a_background(sigmoid: Running) -> None:
    (result,) = await classify(sigmoid, picture("yellow"), none={"background_prompts": BACKGROUND})
    for score in result.scores:
        assert score.probability == pytest.approx(1 / (1 + math.exp(5.0 - 10.0 * score.cosine)), abs=1e-5)
    assert result.none_of_these
    assert not result.HasField("background_probability")


async def test_a_label_that_is_no_nearer_than_the_background_does_not_fit(served: Running) -> None:
    same = {"background_prompts": ["a photo of a red."]}
    (result,) = await classify(served, picture("red"), none=same)
    assert result.scores[0].cosine == result.background_cosine
    assert result.none_of_these


async def test_a_picture_that_fails_is_not_said_to_show_nothing(served: Running) -> None:
    bad, _ = await classify(served, b"no picture", picture("red"), none={"min_cosine": 1.0})
    assert bad.HasField("error")
    assert not bad.none_of_these


async def test_prototypes_take_thresholds_and_no_background(served: Running) -> None:
    request = pb.ClassifyRequest(images=[picture("red"), picture("magenta")], examples=example_set())
    plain = list((await served.classification.Classify(request)).results)
    between = sum(result.scores[0].cosine for result in plain) / 2
    request.none_of_these.min_cosine = between
    judged = list((await served.classification.Classify(request)).results)
    assert [each.none_of_these for each in judged] == [each.scores[0].cosine < between for each in plain]
    assert {each.none_of_these for each in judged} == {True, False}
    assert [list(each.scores) for each in judged] == [list(each.scores) for each in plain]
    request.none_of_these.background_prompts.append("a wall")
    code, message = await refusal(served.classification.Classify(request))
    assert code.name == "INVALID_ARGUMENT"
    assert "background_prompts" in message
    request = pb.ClassifyRequest(
        images=[picture("red")], examples=example_set(rule=KNN), none_of_these=pb.NoneOfThese(min_probability=0.5)
    )
    code, message = await refusal(served.classification.Classify(request))
    assert code.name == "INVALID_ARGUMENT"
    assert "rule PROTOTYPE" in message


@pytest.mark.parametrize(
    ("none", "said"),
    [
        ({"min_cosine": 1.5}, "min_cosine is from -1 to 1"),
        ({"min_cosine": math.nan}, "min_cosine is from -1 to 1"),
        ({"min_probability": -0.1}, "min_probability is from 0 to 1"),
        ({"min_probability": math.inf}, "min_probability is from 0 to 1"),
        ({"background_prompts": ["a wall", " "]}, "a background prompt is empty"),
        ({"background_prompts": ["a wall", "a wall"]}, "two background prompts are the same"),
        ({"background_prompts": [str(i) for i in range(257)]}, "at most 256 background prompts"),
        ({"background_prompts": ["ä" * 513]}, "background prompt"),
    ],
)
async def test_what_cannot_be_meant_is_refused(served: Running, none: dict[str, Any], said: str) -> None:
    request = pb.ClassifyRequest(images=[picture("red")], labels=LABELS, none_of_these=pb.NoneOfThese(**none))
    code, message = await refusal(served.classification.Classify(request))
    assert code.name == "INVALID_ARGUMENT"
    assert said in message


async def test_every_colour_is_told_from_the_others_by_its_background(served: Running) -> None:
    """Each colour alone as the label, the others as the background: a picture of it fits, all others do not."""
    for colour in COLOURS:
        others = [f"a photo of a {other}." for other in COLOURS if other != colour]
        images = [picture(other) for other in COLOURS]
        results = await classify(served, *images, labels=[colour], none={"background_prompts": others})
        assert [not result.none_of_these for result in results] == [other == colour for other in COLOURS]
