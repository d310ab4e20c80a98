"""The votes of neighbours and piles of vectors, without a server."""

from __future__ import annotations

import math

import numpy as np
import pytest

from twinlens.server.core.errors import ServiceError
from twinlens.server.core.example_pile import ExamplePile, NeighbourPile, PrototypePile
from twinlens.server.core.example_scoring import knn_probabilities, prototype_probabilities
from twinlens.server.core.examples import label_of


def slow_votes(cosines: list[float], owners: list[int], labels: int, k: int, temperature: float) -> list[float]:
    order = sorted(range(len(cosines)), key=lambda i: (-cosines[i], i))
    weights = [0.0] * labels
    for i in order[:k]:
        weights[owners[i]] += math.exp(cosines[i] / temperature)
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("k", [1, 2, 3, 7, 12, 99])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_votes_equal_a_full_sort_where_many_are_equally_near(k: int, temperature: float) -> None:
    rng = np.random.default_rng(k)
    starts = np.array([0, 1, 5, 9])
    owners = [0, *[1] * 4, *[2] * 4, *[3] * 3]
    cosines = rng.integers(-3, 4, (40, 12)) / 4  # few values: ties at every border
    got = knn_probabilities(cosines, starts, k, temperature)
    for row, cosine in zip(got, cosines, strict=True):
        np.testing.assert_allclose(row, slow_votes(cosine.tolist(), owners, 4, k, temperature), rtol=1e-9, atol=1e-12)


def test_extreme_temperatures_overflow_nowhere() -> None:
    cosines = np.array([[1.0, -1.0, 0.5], [-1.0, -1.0, -1.0]])
    for temperature in (1e-3, 100.0):
        for got in (
            prototype_probabilities(cosines, temperature),
            knn_probabilities(cosines, np.array([0, 1, 2]), 3, temperature),
        ):
            assert np.isfinite(got).all()
            np.testing.assert_allclose(got.sum(axis=1), 1.0)
            np.testing.assert_allclose(got[1], 1 / 3)


@pytest.mark.parametrize("kind", [PrototypePile, NeighbourPile])
def test_a_pile_groups_by_label_in_the_order_in_which_they_came(kind: type[ExamplePile]) -> None:
    rng = np.random.default_rng(0)
    given = [(f"label {rng.integers(40)}", row / np.linalg.norm(row)) for row in rng.standard_normal((200, 6))]
    pile = kind(6)
    start = 0
    for size in (1, 0, 3, 96, 100):
        page = given[start : start + size]
        pile.add([label for label, _ in page], np.array([row for _, row in page], dtype=np.float32).reshape(-1, 6))
        start += size
    assert pile.count == 200
    assert list(pile.labels) == list(dict.fromkeys(label for label, _ in given))
    targets, starts = pile.targets()
    for label, own in zip(pile.labels, np.split(targets, starts[1:]), strict=True):
        expected = np.array([row for of, row in given if of == label])
        if kind is PrototypePile:
            mean = expected.mean(axis=0, keepdims=True)
            expected = mean / np.linalg.norm(mean)
        np.testing.assert_allclose(own, expected, atol=1e-6)


def test_a_label_without_direction_is_named() -> None:
    pile = PrototypePile(2)
    pile.add(["fine", "nothing", "nothing"], np.array([[1, 0], [0, 1], [0, -1]], dtype=np.float32))
    with pytest.raises(ServiceError, match="'nothing' cancel"):
        pile.targets()


@pytest.mark.parametrize(
    ("value", "label"),
    [("cat", "cat"), (" cat ", " cat "), (3, "3"), (-1, "-1"), (True, None), ("", None), (" \n", None), (2.5, None)],
)
def test_labels_are_texts_and_whole_numbers(value: object, label: str | None) -> None:
    assert label_of(value) == label
