from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from twinlens.training.evaluation.zero_shot import class_vectors, zero_shot


def unit(*shape: int, seed: int) -> NDArray[np.float64]:
    vectors = np.random.default_rng(seed).normal(size=shape)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


@pytest.mark.parametrize("seed", range(3))
def test_class_vectors_equal_the_slow_loop_of_normalise_average_normalise(seed: int) -> None:
    prompts = np.random.default_rng(seed).normal(size=(4, 7, 5)) * 3
    found = class_vectors(prompts)
    for c in range(4):
        total = np.zeros(5)
        for t in range(7):
            total += prompts[c, t] / np.sqrt(sum(x * x for x in prompts[c, t]))
        mean = total / 7
        np.testing.assert_allclose(found[c], mean / np.sqrt(sum(x * x for x in mean)), rtol=1e-12)


def test_a_long_prompt_weighs_no_more_than_a_short_one() -> None:
    prompts = np.array([[[100.0, 0.0], [0.0, 1.0]]])
    np.testing.assert_allclose(class_vectors(prompts), [[np.sqrt(0.5), np.sqrt(0.5)]])


@pytest.mark.parametrize("seed", range(3))
def test_accuracies_equal_a_slow_count(seed: int) -> None:
    images, classes = unit(60, 6, seed=seed), unit(9, 6, seed=seed + 50)
    labels = np.random.default_rng(seed).integers(0, 8, size=60)  # the last class has no pictures
    found = zero_shot(images, labels, classes)
    top_1, top_5, right, seen = 0, 0, np.zeros(9), np.zeros(9)
    for image, label in zip(images, labels, strict=True):
        order = sorted(range(9), key=lambda c: -float(image @ classes[c]))
        top_1 += order[0] == label
        top_5 += label in order[:5]
        right[label] += order[0] == label
        seen[label] += 1
    assert found.top_1 == pytest.approx(top_1 / 60)
    assert found.top_5 == pytest.approx(top_5 / 60)
    np.testing.assert_allclose(found.per_class[:8], right[:8] / seen[:8])
    assert np.isnan(found.per_class[8])
    assert found.mean_per_class == pytest.approx((right[:8] / seen[:8]).mean())


def test_the_confusion_counts_who_went_where() -> None:
    classes = np.eye(3)
    images = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    found = zero_shot(images, np.array([0, 0, 1, 2]), classes)
    assert found.confusions.matrix().tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert found.top_5 is None


def test_ties_count_against_the_own_class() -> None:
    same = np.full((6, 2), np.sqrt(0.5))
    found = zero_shot(same, np.arange(6), same)
    assert (found.top_1, found.top_5, found.mean_per_class) == (0.0, 0.0, 0.0)
    assert found.confusions.right().sum() == 0
    assert found.confusions.matrix().sum() == 6


def test_pieces_of_the_scores_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    images, classes = unit(40, 6, seed=0), unit(7, 6, seed=1)
    labels = np.random.default_rng(2).integers(0, 7, size=40)
    whole, prompts = zero_shot(images, labels, classes), class_vectors(unit(7, 5, 6, seed=3))
    monkeypatch.setattr("twinlens.training.evaluation.zero_shot.SCORES_AT_A_TIME", 30)
    pieces = zero_shot(images, labels, classes)
    assert (pieces.top_1, pieces.top_5) == (whole.top_1, whole.top_5)
    np.testing.assert_allclose(class_vectors(unit(7, 5, 6, seed=3)), prompts, rtol=1e-12)
    np.testing.assert_array_equal(pieces.confusions.chosen, whole.confusions.chosen)


@pytest.mark.parametrize("where", ["pictures", "classes"])
def test_vectors_that_are_not_finite_are_refused_and_win_nothing(where: str) -> None:
    images, classes = np.eye(3), np.eye(3)
    (images if where == "pictures" else classes)[1] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        zero_shot(images, np.arange(3), classes)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (np.ones((2, 3)), "shape"),
        (np.zeros((1, 2, 3)), "zero"),
        (np.full((1, 2, 3), np.nan), "not finite"),
        (np.array([[[1.0, 0.0], [-1.0, 0.0]]]), "opposite"),
    ],
)
def test_prompts_that_give_no_direction_are_refused(prompts: NDArray[np.float64], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_vectors(prompts)


@pytest.mark.parametrize(
    ("images", "labels"),
    [(np.eye(3), np.array([0, 1, 3])), (np.eye(3), np.array([0, 1])), (np.eye(3), np.array([0, 1, -1]))],
)
def test_labels_that_name_no_class_are_refused(images: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
    with pytest.raises(ValueError, match="needs a label"):
        zero_shot(images, labels, np.eye(3))
