"""Symmetric InfoNCE over images and texts, with duplicates and hard negatives handled."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from twinlens.training.losses.pair_features import HardNegatives


def clip_loss(
    image_nd: Tensor,
    text_nd: Tensor,
    logit_scale: Tensor | float,
    *,
    equal: Tensor | None = None,
    hard_texts: HardNegatives | None = None,
    hard_images: HardNegatives | None = None,
) -> Tensor:
    """Symmetric InfoNCE (CLIP, Radford et al. 2021, fig. 3; van den Oord et al. 2018, eq. 4).

    With s_ij = scale · ⟨image_i, text_j⟩ the loss is ½ (A + B), where

        A = mean_i [ -s_ii + log( Σ_j m_ij exp s_ij + Σ_e w_ie exp(scale · ⟨image_i, hard_text_e⟩) ) ]

    and B is the same with the two sides exchanged. The mask m_ij is 0 for equals i ≠ j (pairs that share their picture
    or their caption), else 1: what is equally right is never pushed away, and a perfect model keeps a loss of about 0
    when the batch holds duplicates.

    Args:
        image_nd: Image embeddings of unit norm, shape (n, d).
        text_nd: Text embeddings of unit norm, shape (n, d); row i belongs to image i.
        logit_scale: The factor itself, not its logarithm; at most 100 in CLIP.
        equal: bool, shape (n, n), symmetric: which pairs are equals; the diagonal does not count. None: all differ.
        hard_texts: Extra wrong captions for the image → text direction.
        hard_images: Extra wrong pictures for the text → image direction.

    Returns:
        The loss, a scalar.

    Raises:
        ValueError: if shapes differ, or n < 2 without hard negatives (the loss is then 0 and teaches nothing).
    """
    if image_nd.ndim != 2 or image_nd.shape != text_nd.shape:
        raise ValueError(f"image {tuple(image_nd.shape)} and text {tuple(text_nd.shape)} embeddings must be (n, d)")
    if image_nd.shape[0] < 2 and hard_texts is None and hard_images is None:
        raise ValueError("a batch of one has no negatives: the loss is 0 and teaches nothing")
    logits = logit_scale * image_nd @ text_nd.T
    if equal is not None:
        itself = torch.eye(len(equal), dtype=torch.bool, device=equal.device)
        logits = logits.masked_fill(equal & ~itself, float("-inf"))
    image_rows = _with_extras(logits, image_nd, logit_scale, hard_texts)
    text_rows = _with_extras(logits.T, text_nd, logit_scale, hard_images)
    target = torch.arange(len(logits), device=logits.device)
    return 0.5 * (F.cross_entropy(image_rows, target) + F.cross_entropy(text_rows, target))


def _with_extras(logits: Tensor, anchors_nd: Tensor, scale: Tensor | float, extras: HardNegatives | None) -> Tensor:
    if extras is None or len(extras.embeddings_md) == 0:
        return logits
    more = scale * anchors_nd @ extras.embeddings_md.T
    if extras.weights is not None:
        more = more + extras.weights.to(more).expand_as(more).log()
    return torch.cat([logits, more], dim=1)
