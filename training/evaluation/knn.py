"""Weighted nearest neighbours over embeddings: the quickest honest look at a self-supervised encoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# Scores of so many queries against the whole bank are in memory at a time.
_CHUNK = 1024


def knn_votes(
    queries_md: Tensor,
    bank_nd: Tensor,
    bank_labels: Tensor,
    classes: int,
    *,
    k: int = 20,
    temperature: float = 0.07,
    leave_one_out: bool = False,
) -> Tensor:
    """Votes of the k nearest by cosine, each weighted by exp(s / τ) (Wu et al. 2018, section 3.4).

    Args:
        queries_md: Embeddings to classify, shape (m, d); normalised inside.
        bank_nd: Embeddings with known classes, shape (n, d); normalised inside.
        bank_labels: int64, shape (n,), each in [0, classes).
        classes: How many there are.
        k: Neighbours; all of the bank where it has fewer.
        temperature: τ > 0.
        leave_one_out: The queries are the bank, and no row votes for itself.

    Returns:
        float32, shape (m, classes), rows of sum 1.

    Raises:
        ValueError: if shapes differ, the bank has nobody to vote, a label is out of range, or k or τ is too small.
    """
    if queries_md.ndim != 2 or bank_nd.ndim != 2 or queries_md.shape[1] != bank_nd.shape[1]:
        raise ValueError(f"queries {tuple(queries_md.shape)} and bank {tuple(bank_nd.shape)} must be (m, d) and (n, d)")
    if bank_labels.shape != (len(bank_nd),):
        raise ValueError(f"{len(bank_nd)} labels are needed, got {tuple(bank_labels.shape)}")
    if leave_one_out and len(queries_md) != len(bank_nd):
        raise ValueError("to leave one out, the queries must be the bank")
    voters = len(bank_nd) - leave_one_out
    if voters < 1 or k < 1 or temperature <= 0:
        raise ValueError(
            f"at least one neighbour and a positive temperature are needed: {voters=}, {k=}, {temperature=}"
        )
    if int(bank_labels.min()) < 0 or int(bank_labels.max()) >= classes:
        raise ValueError(f"every label of the bank must be in [0, {classes})")
    with torch.no_grad(), torch.autocast(queries_md.device.type, enabled=False):
        bank = F.normalize(bank_nd.float(), dim=1)
        votes = torch.zeros(len(queries_md), classes, device=queries_md.device)
        for start in range(0, len(queries_md), _CHUNK):
            scores = F.normalize(queries_md[start : start + _CHUNK].float(), dim=1) @ bank.T
            if leave_one_out:
                rows = torch.arange(len(scores), device=scores.device)
                scores[rows, start + rows] = float("-inf")
            nearest, where = scores.topk(min(k, voters), dim=1)
            # softmax is exp(s / τ) up to a factor of the row, and cannot overflow.
            weights = (nearest / temperature).softmax(dim=1)
            votes[start : start + _CHUNK].scatter_add_(1, bank_labels[where], weights)
    return votes


def accuracy(votes_mc: Tensor, labels: Tensor) -> float:
    """Share of rows whose own class has more than every other; a tie counts against it, so constant votes score 0.

    Args:
        votes_mc: Any scores, shape (m, classes).
        labels: int64, shape (m,).

    Raises:
        ValueError: if shapes differ or there is nothing to score.
    """
    if votes_mc.ndim != 2 or labels.shape != (len(votes_mc),) or not len(labels):
        raise ValueError(f"scores {tuple(votes_mc.shape)} and labels {tuple(labels.shape)} must be (m, c) and (m,)")
    own = votes_mc.gather(1, labels[:, None])
    others = votes_mc.scatter(1, labels[:, None], float("-inf"))
    return float((own > others.amax(dim=1, keepdim=True)).double().mean())
