"""Weighted nearest neighbours against slow loops and scikit-learn."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from twinlens.training.data.picture_sources import load_pictures
from twinlens.training.evaluation import knn
from twinlens.training.evaluation.knn import accuracy, knn_votes


def drawn(n: int, d: int, seed: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def votes_by_loops(
    queries: Tensor, bank: Tensor, labels: Tensor, classes: int, k: int, tau: float, leave_one_out: bool
) -> list[list[float]]:
    rows = []
    for q, query in enumerate(queries.tolist()):
        scored = []
        for i, other in enumerate(bank.tolist()):
            if leave_one_out and i == q:
                continue
            dot = sum(a * b for a, b in zip(query, other, strict=True))
            norms = math.sqrt(sum(a * a for a in query)) * math.sqrt(sum(b * b for b in other))
            scored.append((dot / norms, int(labels[i])))
        votes = [0.0] * classes
        for score, label in sorted(scored, reverse=True)[:k]:
            votes[label] += math.exp(score / tau)
        rows.append([vote / sum(votes) for vote in votes])
    return rows


@settings(max_examples=30)
@given(
    st.integers(2, 30),
    st.integers(1, 6),
    st.integers(1, 40),
    st.sampled_from([0.07, 1.0]),
    st.booleans(),
    st.integers(0, 99),
)
def test_votes_are_the_papers_weighted_sums(n: int, d: int, k: int, tau: float, leave_one_out: bool, seed: int) -> None:
    bank = drawn(n, d + 1, seed)
    queries = bank if leave_one_out else drawn(7, d + 1, seed + 1)
    labels = torch.arange(n) % 3
    found = knn_votes(queries, bank, labels, 3, k=k, temperature=tau, leave_one_out=leave_one_out)
    expected = torch.tensor(votes_by_loops(queries, bank, labels, 3, k, tau, leave_one_out))
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-3)


def test_votes_agree_with_scikit_learn() -> None:
    bank, queries, labels = drawn(200, 8, 0), drawn(50, 8, 1), torch.arange(200) % 5
    reference = KNeighborsClassifier(
        20,
        metric="cosine",
        algorithm="brute",
        weights=lambda distance: torch.exp(torch.as_tensor((1 - distance) / 0.07)).numpy(),
    ).fit(bank.numpy(), labels.numpy())
    expected = torch.from_numpy(reference.predict_proba(queries.numpy())).float()
    torch.testing.assert_close(knn_votes(queries, bank, labels, 5), expected, atol=1e-4, rtol=1e-3)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, labels = drawn(40, 4, 0), torch.arange(40) % 4
    whole = knn_votes(bank, bank, labels, 4, k=5, leave_one_out=True)
    monkeypatch.setattr(knn, "_CHUNK", 7)
    torch.testing.assert_close(knn_votes(bank, bank, labels, 4, k=5, leave_one_out=True), whole)


def test_a_row_never_votes_for_itself() -> None:
    bank = torch.eye(4)
    votes = knn_votes(bank, bank, torch.arange(4), 4, k=1, leave_one_out=True)
    assert votes.diagonal().tolist() == [0.0] * 4


def test_a_tiny_temperature_does_not_overflow() -> None:
    votes = knn_votes(torch.ones(2, 3), torch.ones(5, 3), torch.zeros(5, dtype=torch.int64), 2, temperature=1e-4)
    torch.testing.assert_close(votes, torch.tensor([[1.0, 0.0], [1.0, 0.0]]))


def test_half_precision_embeddings_are_compared_in_full_precision() -> None:
    bank, labels = drawn(64, 16, 0).bfloat16(), torch.arange(64) % 4
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = knn_votes(bank, bank, labels, 4, leave_one_out=True)
    torch.testing.assert_close(found, knn_votes(bank.double(), bank.double(), labels, 4, leave_one_out=True))


def test_constant_votes_score_nothing() -> None:
    labels = torch.arange(6) % 3
    assert accuracy(torch.ones(6, 3), labels) == 0.0
    assert accuracy(torch.eye(3)[labels], labels) == 1.0
    assert accuracy(torch.eye(3)[(labels + (torch.arange(6) < 3)) % 3], labels) == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "at least one neighbour"),
        ({"temperature": 0.0}, "positive temperature"),
        ({"bank_labels": torch.tensor([0, 1, 5])}, "every label"),
        ({"bank_labels": torch.tensor([0, 1])}, "3 labels"),
        ({"queries_md": torch.ones(2, 3)}, "must be"),
        ({"leave_one_out": True, "queries_md": torch.ones(2, 4)}, "must be the bank"),
    ],
)
def test_what_cannot_vote_is_refused(change: dict[str, object], message: str) -> None:
    asked = {"queries_md": torch.ones(3, 4), "bank_nd": torch.ones(3, 4), "bank_labels": torch.arange(3), "classes": 3}
    with pytest.raises(ValueError, match=message):
        knn_votes(**{**asked, **change})  # type: ignore[arg-type]


def test_scores_and_labels_must_fit() -> None:
    with pytest.raises(ValueError, match="must be"):
        accuracy(torch.ones(3, 2), torch.arange(2))


@pytest.mark.shared
def test_neighbours_by_colour_alone_beat_chance_on_real_photos(shared_data: Path) -> None:
    pictures = load_pictures(shared_data / "cifar10_shards" / "train", side=32, smallest=32, limit=1000)
    pixels = torch.from_numpy(pictures.pixels_nhwc).float()
    coarse = torch.nn.functional.avg_pool2d(pixels.permute(0, 3, 1, 2), 8).flatten(1)
    labels = torch.from_numpy(pictures.labels)
    found = accuracy(
        knn_votes(coarse - coarse.mean(dim=0), coarse - coarse.mean(dim=0), labels, 10, leave_one_out=True), labels
    )
    assert 0.18 < found < 0.5
