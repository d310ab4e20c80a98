"""The sigmoid loss of SigLIP, over chunks of the pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from twinlens.training.losses.pair_features import PairFeatures
from twinlens.training.losses.pair_mean import pair_mean

# What the authors start from (§3.2): log of the scale, and the bias. Most pairs of a batch are negatives, and a bias
# of 0 would make the first steps undo that imbalance.
STARTING_LOG_SCALE = 2.302585092994046  # log 10
STARTING_BIAS = -10.0


def sigmoid_loss(
    features: PairFeatures, scale: Tensor | float, bias: Tensor | float, *, chunk_size: int = 4096
) -> Tensor:
    """Each pair of a picture and a caption on its own: right or wrong (SigLIP, Zhai et al. 2023, eq. 2).

    With s_ij = scale · ⟨image_i, text_j⟩ + bias, z_ii = 1, and z_ij = -1 for i ≠ j:

        L = mean_i [ Σ_j m_ij softplus(-z_ij s_ij) + Σ_e w_ie softplus(s_ie) ]

    where e runs over the hard captions of picture i and the hard pictures of caption i. The weight m_ii is 1; m_ij is 0
    for equals i ≠ j, else that of the negative, 1 by default. The mean is over pairs, not over comparisons: as in the
    paper, the loss grows with the batch.

    Comparisons are formed for `chunk_size` captions at a time, and formed again on the way back: what is kept for the
    backward pass are the embeddings, and the memory beside them is O(n · chunk_size) in both passes.

    Args:
        features: What is compared.
        scale: The factor on cosines itself, not its logarithm.
        bias: Added after that.
        chunk_size: The most captions (or extras) that are compared with all own pictures at once.

    Returns:
        The loss over the own pairs, a scalar.

    Raises:
        ValueError: if `chunk_size` is not positive.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be positive, found {chunk_size}")
    images, texts = features.images_nd, features.texts_nd
    scale, bias = torch.as_tensor(scale).to(images), torch.as_tensor(bias).to(images)
    losses = _sums(images, features.all_texts_md, scale, bias, features.weights_nm, features.first, chunk_size)
    for anchors, extras in ((images, features.hard_texts), (texts, features.hard_images)):
        if extras:
            weights = partial(extras.weights_nm, anchors.detach())
            losses = losses + _sums(anchors, extras.embeddings_md, scale, bias, weights, None, chunk_size)
    return pair_mean(losses, features.weights_n)


# Of a slice of columns: how much each comparison counts, shape (n, columns).
_Weights = Callable[[slice], Tensor]


def _sums(
    anchors_nd: Tensor,
    others_md: Tensor,
    scale: Tensor,
    bias: Tensor,
    weights: _Weights,
    first: int | None,
    chunk_size: int,
) -> Tensor:
    """Σ_j w_ij softplus(-z_ij s_ij), shape (n,); anchor i is right for column `first + i`, or for none."""
    sums: Tensor = _ChunkedSums.apply(anchors_nd, others_md, scale, bias, weights, first, chunk_size)
    return sums


class _ChunkedSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchors: Tensor,
        others: Tensor,
        scale: Tensor,
        bias: Tensor,
        weights: _Weights,
        first: int | None,
        chunk_size: int,
    ) -> Tensor:
        ctx.save_for_backward(anchors, others, scale, bias)
        ctx.rest = weights, first, chunk_size
        sums = anchors.new_zeros(len(anchors))
        for columns, signs in _chunks(anchors, others, first, chunk_size):
            wrongness = signs * (scale * anchors @ others[columns].T + bias)
            sums -= (weights(columns) * F.logsigmoid(-wrongness)).sum(dim=1)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_n: Tensor) -> tuple[Tensor | None, ...]:
        anchors, others, scale, bias = ctx.saved_tensors
        weights, first, chunk_size = ctx.rest
        of_anchors, of_others = torch.zeros_like(anchors), torch.empty_like(others)
        of_scale, of_bias = torch.zeros_like(scale), torch.zeros_like(bias)
        for columns, signs in _chunks(anchors, others, first, chunk_size):
            cosines = anchors @ others[columns].T
            # d softplus(x) = sigmoid(x) dx
            of_logits = torch.sigmoid(signs * (scale * cosines + bias)) * signs * weights(columns)
            of_logits *= gradient_n[:, None]
            of_anchors += scale * of_logits @ others[columns]
            of_others[columns] = scale * of_logits.T @ anchors
            of_scale += (of_logits * cosines).sum()
            of_bias += of_logits.sum()
        return of_anchors, of_others, of_scale, of_bias, None, None, None


def _chunks(anchors: Tensor, others: Tensor, first: int | None, chunk_size: int) -> Iterator[tuple[slice, Tensor]]:
    """Slices of the columns, each with what makes a comparison a wrongness: -1 where it is right, else 1."""
    rows = torch.arange(len(anchors), device=anchors.device)
    for start in range(0, len(others), chunk_size):
        columns = slice(start, min(start + chunk_size, len(others)))
        signs = anchors.new_ones(len(anchors), columns.stop - start)
        if first is not None:
            here = (rows + first >= start) & (rows + first < columns.stop)
            signs[rows[here], rows[here] + first - start] = -1.0
        yield columns, signs
