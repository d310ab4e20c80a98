"""Embeddings of pairs for the tests of losses: double precision, seeded, with everything a batch may hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from twinlens.training.losses.pair_features import HardNegatives, PairFeatures, of_one_process


def unit(rows: int, seed: int, dimension: int = 5) -> Tensor:
    """Unit vectors that gradients are taken of, float64, shape (rows, dimension)."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(rows, dimension, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(vectors, dim=-1).requires_grad_()


def same(keys: Tensor, others: Tensor | None = None) -> Tensor:
    """Which keys are equal, shape (len(keys), len(others))."""
    return keys[:, None] == (keys if others is None else others)[None, :]


@dataclass(frozen=True)
class BusyBatch:
    """Seven pairs with duplicates, hard negatives of both kinds and every kind of weight.

    Attributes:
        features: What a loss takes.
        leaves: What it has gradients for: pictures, captions, hard captions, hard pictures.
    """

    features: PairFeatures
    leaves: tuple[Tensor, ...]


def busy_batch() -> BusyBatch:
    """See `BusyBatch`."""
    n = 7
    images, texts, hard_texts, hard_images = unit(n, 0), unit(n, 1), unit(4, 2), unit(3, 3)
    generator = torch.Generator().manual_seed(4)
    equal = same(torch.tensor([0, 1, 2, 2, 4, 5, 6])) | same(torch.tensor([0, 1, 2, 3, 0, 5, 6]))
    text_weights = 2 * torch.rand(n, 4, generator=generator, dtype=torch.float64)
    text_weights[1, 2] = 0.0
    image_weights = torch.tensor([0.5, 0.0, 3.0], dtype=torch.float64)  # for all anchors alike
    features = of_one_process(
        images,
        texts,
        equal=equal,
        hard_texts=HardNegatives(hard_texts, text_weights),
        hard_images=HardNegatives(hard_images, image_weights),
        weights_n=torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0, 3.0, 1.0], dtype=torch.float64),
        negative_weights=2 * torch.rand(n, n, generator=generator, dtype=torch.float64),
    )
    return BusyBatch(features, (images, texts, hard_texts, hard_images))


def perfect_batch() -> PairFeatures:
    """What a perfect model makes of a batch with two and with three pairs that show and say the same."""
    keys = torch.tensor([0, 1, 1, 2, 2, 2])
    vectors = torch.eye(4, dtype=torch.float64)[keys]
    return of_one_process(vectors, vectors, equal=same(keys))


def assert_same_loss_and_gradients(fast: Tensor, slow: Tensor, leaves: tuple[Tensor, ...]) -> None:
    """To twelve digits, and every gradient is finite and not all zero."""
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    ours, theirs = (torch.autograd.grad(loss, leaves) for loss in (fast, slow))
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-10, atol=1e-12)
        assert torch.isfinite(our).all()
        assert our.any()
