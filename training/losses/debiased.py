"""InfoNCE that expects some of its negatives to be right."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from twinlens.training.losses.pair_features import HardNegatives, PairFeatures
from twinlens.training.losses.pair_mean import pair_mean


def debiased_info_nce(features: PairFeatures, scale: Tensor | float, *, tau_plus: float) -> Tensor:
    """Debiased contrastive loss (Chuang et al. 2020, eq. 7 and 8 with one positive), in both directions.

    A share τ⁺ of what a batch takes for negatives is right after all, and what such a one would add is taken off again.
    With s_ij = scale · ⟨image_i, text_j⟩ and N_i = Σ_{j ≠ i} m_ij the loss is ½ (A + B), where

        g_i = max( [ Σ_{j ≠ i} m_ij exp(s_ij) / N_i - τ⁺ exp(s_ii) ] / (1 - τ⁺), exp(-scale) )
        A = mean_i [ -s_ii + log( exp(s_ii) + N_i g_i + Σ_e w_ie exp(scale · ⟨image_i, hard_text_e⟩) ) ]

    and B is the same with the two sides exchanged. The bound of g_i is the least that any negative can add, for cosines
    end at -1; the paper writes the temperature 1/scale. The weight m_ij is 0 for equals, which are known to be right,
    else that of the negative, 1 by default. Hard negatives are known to be wrong: they stand outside the correction.

    Args:
        features: What is compared.
        scale: The factor on cosines itself, not its logarithm.
        tau_plus: τ⁺, from 0 (then this is InfoNCE) to below 1: for classes of equal size, one over their number.

    Returns:
        The loss over the own pairs, a scalar.

    Raises:
        ValueError: if `tau_plus` is out of range.
    """
    if not 0 <= tau_plus < 1:
        raise ValueError(f"tau_plus must be from 0 to below 1, found {tau_plus}")
    scale = torch.as_tensor(scale).to(features.images_nd)
    weights = features.weights_nm().scatter(1, features.itself_n[:, None], 0.0)
    right = scale * (features.images_nd * features.texts_nd).sum(dim=1)
    captions = _directed(
        features.images_nd, features.all_texts_md, scale, right, weights, features.hard_texts, tau_plus
    )
    pictures = _directed(
        features.texts_nd, features.all_images_md, scale, right, weights, features.hard_images, tau_plus
    )
    return 0.5 * pair_mean(captions + pictures, features.weights_n)


def _directed(
    anchors_nd: Tensor,
    others_md: Tensor,
    scale: Tensor,
    right_n: Tensor,
    weights_nm: Tensor,
    extras: HardNegatives | None,
    tau_plus: float,
) -> Tensor:
    # All in logarithms: at a scale of 100, exp(s) does not fit into fp32.
    counts = weights_nm.sum(dim=1)
    alone = counts == 0
    logits = scale * anchors_nd @ others_md.T + weights_nm.log()
    # A row without negatives has no mean; its stand-in gets no gradient.
    mean = torch.logsumexp(logits.masked_fill(alone[:, None], 0.0), dim=1) - counts.masked_fill(alone, 1.0).log()
    terms = [right_n, (_corrected(mean, right_n, tau_plus).maximum(-scale) + counts.log())]
    wrong = torch.stack(terms, dim=1)
    if extras:
        more = scale * anchors_nd @ extras.embeddings_md.T + extras.weights_nm(anchors_nd).log()
        wrong = torch.cat([wrong, more], dim=1)
    return torch.logsumexp(wrong, dim=1) - right_n


def _corrected(mean_n: Tensor, right_n: Tensor, tau_plus: float) -> Tensor:
    """log( [exp(mean) - τ⁺ exp(right)] / (1 - τ⁺) ), -inf where that is not positive."""
    if tau_plus == 0:
        return mean_n
    taken_off = right_n + math.log(tau_plus) - mean_n
    positive = taken_off < 0
    # The inner `where` keeps the gradient of what is not taken finite; `expm1` keeps it where almost all is taken off.
    left = (-torch.where(positive, taken_off, -1.0).expm1()).log()
    return torch.where(positive, mean_n + left, -math.inf) - math.log1p(-tau_plus)
