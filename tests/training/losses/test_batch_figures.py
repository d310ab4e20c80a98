from __future__ import annotations

import dataclasses
import math

import pytest
import torch

import twinlens.training.losses.batch_figures
from tests.support.pair_features import busy_batch, perfect_batch, unit
from twinlens.training.losses.batch_figures import batch_figures
from twinlens.training.losses.info_nce import info_nce
from twinlens.training.losses.pair_features import HardNegatives, of_one_process

SCALE = torch.tensor(8.0, dtype=torch.float64)


def test_the_bound_is_the_logarithm_of_the_batch_less_the_info_nce_loss() -> None:
    features = of_one_process(unit(6, 0), unit(6, 1))
    expected = math.log(6) - info_nce(features, SCALE).item()
    assert batch_figures(features, SCALE)["bound"].item() == pytest.approx(expected, abs=1e-12)


def test_a_perfect_model_is_vouched_for_by_the_whole_logarithm() -> None:
    eye = torch.eye(8, dtype=torch.float64)
    figures = batch_figures(of_one_process(eye, eye), torch.tensor(100.0))
    assert figures["bound"].item() == pytest.approx(math.log(8), abs=1e-12)
    assert figures["accuracy"] == 1
    assert figures["positive_cosine"] == 1
    assert figures["negative_cosine"] == 0


def test_embeddings_that_are_all_the_same_vouch_for_nothing() -> None:
    vectors = torch.ones(8, 4, dtype=torch.float64) / 2
    figures = batch_figures(of_one_process(vectors, vectors), torch.tensor(100.0))
    assert figures["bound"].item() == pytest.approx(0, abs=1e-12)
    assert figures["accuracy"] == 0


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_every_figure_equals_the_slow_count(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twinlens.training.losses.batch_figures, "_CHUNK", chunk)
    features = busy_batch().features
    assert features.equal is not None
    assert features.hard_texts is not None
    images, texts, n = features.images_nd.detach(), features.texts_nd.detach(), len(features.images_nd)
    hits, positives, negatives, bounds = 0, 0.0, 0.0, 0.0
    for i in range(n):
        own = float(images[i] @ texts[i])
        rivals = [j for j in range(n) if not features.equal[i, j]]
        cosines = [float(images[i] @ texts[j]) for j in rivals]
        hard = [
            float(images[i] @ features.hard_texts.embeddings_md[e].detach())
            for e in range(len(features.hard_texts))
            if features.hard_texts.weights_nm(images)[i, e] > 0
        ]
        hits += own > max(cosines + hard)
        positives += own / n
        negatives += sum(cosines) / len(cosines) / n
        for anchors, others in ((images, texts), (texts, images)):
            terms = [math.exp(8 * float(anchors[i] @ others[j])) for j in (i, *rivals)]
            bounds += (math.log(len(terms)) + 8 * own - math.log(sum(terms))) / 2 / n
    figures = {name: value.item() for name, value in batch_figures(features, SCALE).items()}
    assert figures == pytest.approx(
        {
            "accuracy": hits / n,
            "positive_cosine": positives,
            "negative_cosine": negatives,
            "bound": bounds,
            "scale": 8.0,
            "temperature": 0.125,
        },
        abs=1e-7,  # the accuracy is a float32
    )


def test_duplicates_are_no_rivals() -> None:
    batch = perfect_batch()
    assert batch_figures(batch, SCALE)["accuracy"] == 1
    assert batch_figures(dataclasses.replace(batch, equal=None), SCALE)["accuracy"].item() == pytest.approx(1 / 6)


def test_a_hard_caption_that_scores_as_well_costs_the_accuracy_of_its_anchor() -> None:
    eye = torch.eye(4, dtype=torch.float64)
    own = HardNegatives(eye[:1], torch.tensor([[1.0], [0.0], [0.0], [0.0]], dtype=torch.float64))
    assert batch_figures(of_one_process(eye, eye, hard_texts=own), SCALE)["accuracy"] == 0.75


def test_figures_carry_no_gradients() -> None:
    scale = SCALE.clone().requires_grad_()
    assert not any(value.requires_grad for value in batch_figures(busy_batch().features, scale).values())
