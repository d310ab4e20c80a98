"""Each measure against slow float64 loops over its published equation, and against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from twinlens.training.collapse.measures import (
    alignment,
    effective_rank,
    participation_ratio,
    spread,
    std_per_dimension,
    uniformity,
)


def drawn(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit_rows(vectors: Tensor) -> list[list[float]]:
    return [[x / math.sqrt(sum(y * y for y in row)) for x in row] for row in vectors.tolist()]


def test_std_is_that_of_each_dimension_of_the_normalised_vectors() -> None:
    vectors = drawn(7, 4) * torch.arange(1, 8)[:, None]
    rows = unit_rows(vectors)
    expected = []
    for k in range(4):
        mean = sum(row[k] for row in rows) / 7
        expected.append(math.sqrt(sum((row[k] - mean) ** 2 for row in rows) / 7))
    torch.testing.assert_close(std_per_dimension(vectors), torch.tensor(expected, dtype=torch.float64))


def test_std_of_evenly_spread_vectors_is_one_over_root_d() -> None:
    axes = torch.cat([torch.eye(8), -torch.eye(8)])
    torch.testing.assert_close(std_per_dimension(axes), torch.full((8,), 8**-0.5))
    assert spread(axes).item() == pytest.approx(1.0)


@settings(max_examples=25)
@given(st.integers(2, 12), st.integers(1, 9), st.integers(0, 1000))
def test_spread_is_what_the_mean_leaves(n: int, d: int, seed: int) -> None:
    vectors = drawn(n, d, seed)
    mean = torch.tensor(unit_rows(vectors), dtype=torch.float64).mean(dim=0)
    assert spread(vectors).item() == pytest.approx(math.sqrt(max(0.0, 1 - float(mean @ mean))), abs=1e-7)


@settings(max_examples=25)
@given(st.integers(2, 12), st.integers(1, 9), st.integers(0, 1000))
def test_effective_rank_is_the_exponential_of_the_entropy_of_singular_values(n: int, d: int, seed: int) -> None:
    vectors = drawn(n, d, seed)
    values = np.sqrt(np.clip(np.linalg.eigvalsh((vectors.T @ vectors).numpy()), 0, None))
    shares = [value / values.sum() for value in values if value > 1e-7]
    expected = math.exp(-sum(share * math.log(share) for share in shares))
    assert effective_rank(vectors).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_effective_rank_counts_equal_singular_values(rank: int) -> None:
    basis, _ = torch.linalg.qr(drawn(20, rank))
    directions, _ = torch.linalg.qr(drawn(9, rank, seed=1))
    assert effective_rank(3.0 * basis @ directions.T).item() == pytest.approx(rank)


def test_ranks_of_nothing_are_zero_and_of_equal_vectors_one() -> None:
    zeros = torch.zeros(4, 3)
    assert effective_rank(zeros).item() == participation_ratio(zeros).item() == 0.0
    equal = torch.ones(4, 3)
    assert effective_rank(equal).item() == pytest.approx(1.0)
    assert participation_ratio(equal).item() == 0.0


@pytest.mark.parametrize(("n", "d"), [(30, 6), (6, 30)])
def test_participation_ratio_is_that_of_the_covariance_eigenvalues(n: int, d: int) -> None:
    vectors = drawn(n, d)
    values = np.linalg.eigvalsh(np.cov(vectors.numpy(), rowvar=False))
    expected = sum(values) ** 2 / sum(value**2 for value in values)
    assert participation_ratio(vectors).item() == pytest.approx(expected)


def test_faint_noise_hides_a_line_from_the_effective_rank_but_not_from_the_participation_ratio() -> None:
    line = drawn(200, 1) @ drawn(1, 128, seed=1) / 128**0.5
    noisy = line + 0.01 * drawn(200, 128, seed=2)
    assert effective_rank(noisy).item() > 10
    assert participation_ratio(noisy).item() < 1.2


def test_alignment_and_uniformity_are_the_papers_sums() -> None:
    first, second = drawn(6, 3), drawn(6, 3, seed=1)
    a, b = unit_rows(first), unit_rows(second)
    squared = [sum((x - y) ** 2 for x, y in zip(p, q, strict=True)) for p, q in zip(a, b, strict=True)]
    assert alignment(first, second).item() == pytest.approx(sum(squared) / 6)
    assert alignment(first, second, alpha=1).item() == pytest.approx(sum(math.sqrt(s) for s in squared) / 6)
    potentials = [
        math.exp(-2 * sum((x - y) ** 2 for x, y in zip(a[i], a[j], strict=True))) for i in range(6) for j in range(i)
    ]
    assert uniformity(first).item() == pytest.approx(math.log(sum(potentials) / len(potentials)))


def test_closed_forms_at_the_ends() -> None:
    vectors = drawn(5, 3)
    assert alignment(vectors, 7 * vectors).item() == pytest.approx(0.0, abs=1e-12)
    assert alignment(vectors, -vectors).item() == pytest.approx(4.0)
    assert uniformity(vectors[:1].expand(4, 3)).item() == pytest.approx(0.0)
    assert uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).item() == pytest.approx(-8.0)


def test_alignment_is_symmetric_and_uniformity_blind_to_order() -> None:
    first, second = drawn(6, 3), drawn(6, 3, seed=1)
    torch.testing.assert_close(alignment(first, second), alignment(second, first))
    torch.testing.assert_close(uniformity(first), uniformity(first.flip(0)))


@pytest.mark.parametrize("measure", [std_per_dimension, spread, effective_rank, participation_ratio, uniformity])
def test_half_precision_inputs_are_measured_in_full_precision(measure: object) -> None:
    half = drawn(16, 8).to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        value = measure(half)  # type: ignore[operator]
    assert value.dtype in {torch.float32, torch.float64}
    torch.testing.assert_close(value, measure(half.double()), check_dtype=False, rtol=1e-4, atol=1e-5)  # type: ignore[operator]


@pytest.mark.parametrize("shape", [(1, 4), (4,), (3, 0)])
def test_shapes_that_have_no_spread_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        std_per_dimension(torch.zeros(shape))
    with pytest.raises(ValueError, match="one shape"):
        alignment(torch.zeros(3, 2), torch.zeros(2, 2))
