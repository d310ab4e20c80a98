"""The linear probe against scikit-learn, and what it must not depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from twinlens.training.evaluation.linear_probe import fit_linear, linear_probe


def clusters(n: int, d: int, classes: int, *, width: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    centres = np.random.default_rng(99).standard_normal((classes, d))
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    return torch.from_numpy(centres[labels] + width * rng.standard_normal((n, d))), torch.from_numpy(labels)


@pytest.mark.parametrize("penalty", [1e-3, 1e-1])
def test_the_fit_is_that_of_scikit_learn(penalty: float) -> None:
    features, labels = clusters(120, 6, 3)
    standard = ((features - features.mean(0)) / features.std(0, correction=0)).numpy()
    reference = LogisticRegression(C=1 / (penalty * len(labels)), tol=1e-10, max_iter=5000).fit(
        standard, labels.numpy()
    )
    fitted = fit_linear(features, labels, 3, penalty)
    torch.testing.assert_close(fitted.weight_cd, torch.from_numpy(reference.coef_), atol=1e-4, rtol=1e-3)
    probabilities = torch.from_numpy(reference.predict_proba(standard))
    torch.testing.assert_close(fitted.logits(features).softmax(dim=1), probabilities, atol=1e-4, rtol=1e-3)


def test_scale_and_offset_of_features_do_not_matter() -> None:
    train, labels = clusters(100, 5, 4, width=2.0)
    test, test_labels = clusters(80, 5, 4, width=2.0, seed=1)
    plain = linear_probe(train, labels, test, test_labels, 4, penalties=[1e-2])
    moved = linear_probe(1000 * train + 7, labels, 1000 * test + 7, test_labels, 4, penalties=[1e-2])
    assert plain == moved
    assert 0.4 < plain.accuracy < 1.0


def test_the_classifier_can_be_put_on_features_as_they_are() -> None:
    features, labels = clusters(60, 5, 3)
    fitted = fit_linear(features * torch.arange(1, 6) + 3, labels, 3, 1e-2)
    weight, bias = fitted.on_features()
    raw = features * torch.arange(1, 6) + 3
    torch.testing.assert_close(raw @ weight.T + bias, fitted.logits(raw))


def test_a_dead_dimension_does_no_harm() -> None:
    features, labels = clusters(60, 5, 3)
    dead = torch.cat([features, torch.full((60, 1), 0.3, dtype=torch.float64)], dim=1)
    torch.testing.assert_close(
        fit_linear(dead, labels, 3, 1e-2).logits(dead),
        fit_linear(features, labels, 3, 1e-2).logits(features),
        atol=1e-4,
        rtol=1e-4,
    )


def test_labels_that_features_know_nothing_of_are_found_by_chance() -> None:
    rng = np.random.default_rng(0)
    features, labels = torch.from_numpy(rng.standard_normal((400, 8))), torch.from_numpy(rng.integers(0, 4, 400))
    found = linear_probe(features[:200], labels[:200], features[200:], labels[200:], 4)
    assert abs(found.accuracy - 0.25) < 0.12


def test_of_several_penalties_one_is_chosen_without_the_test_pictures() -> None:
    train, labels = clusters(60, 40, 3, width=4.0)
    test, test_labels = clusters(60, 40, 3, width=4.0, seed=1)
    found = linear_probe(train, labels, test, test_labels, 3)
    other = linear_probe(train, labels, test.flip(0), test_labels, 3)
    assert found.penalty == other.penalty
    assert found == linear_probe(train, labels, test, test_labels, 3, penalties=[found.penalty])


def test_one_picture_a_class_leaves_nothing_to_choose_by() -> None:
    assert linear_probe(torch.eye(3), torch.arange(3), torch.eye(3), torch.arange(3), 3).accuracy == 1.0


def test_half_precision_features_and_autocast_are_computed_in_full() -> None:
    features, labels = clusters(60, 5, 3)
    half = features.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        found = fit_linear(half, labels, 3, 1e-2)
    torch.testing.assert_close(found.weight_cd, fit_linear(half.double(), labels, 3, 1e-2).weight_cd)


@pytest.mark.parametrize(
    ("features", "labels", "penalty", "message"),
    [
        (torch.ones(3, 2), torch.arange(2), 1.0, "must be"),
        (torch.full((3, 2), float("nan")), torch.arange(3), 1.0, "not finite"),
        (torch.ones(3, 2), torch.arange(3) + 1, 1.0, r"in \[0, 3\)"),
        (torch.ones(3, 2), torch.arange(3), 0.0, "positive"),
    ],
)
def test_what_cannot_be_fitted_is_refused(features: Tensor, labels: Tensor, penalty: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_linear(features, labels, 3, penalty)
    with pytest.raises(ValueError, match="at least one penalty"):
        linear_probe(torch.eye(3), torch.arange(3), torch.eye(3), torch.arange(3), 3, penalties=[])
