"""Symmetric InfoNCE over images and texts, with duplicates and hard negatives handled."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from twinlens.training.losses.pair_features import HardNegatives, PairFeatures
from twinlens.training.losses.pair_mean import pair_mean


def info_nce(features: PairFeatures, scale: Tensor | float) -> Tensor:
    """Symmetric InfoNCE (CLIP, Radford et al. 2021, fig. 3; van den Oord et al. 2018, eq. 4).

    With s_ij = scale · ⟨image_i, text_j⟩ the loss is ½ (A + B), where

        A = mean_i [ -s_ii + log( Σ_j m_ij exp s_ij + Σ_e w_ie exp(scale · ⟨image_i, hard_text_e⟩) ) ]

    and B is the same with the two sides exchanged. The weight m_ii is 1; m_ij is 0 for equals i ≠ j (pairs that share
    their picture or their caption), else that of the negative, 1 by default: what is equally right is never pushed
    away, and a perfect model keeps a loss of about 0 when the batch holds duplicates. A weight of k is as k copies.

    Args:
        features: What is compared.
        scale: The factor on cosines itself, not its logarithm; at most 100 in CLIP.

    Returns:
        The loss over the own pairs, a scalar.
    """
    weights = features.weights_nm()
    itself = features.itself_n
    captions = _entropies(features.images_nd, features.all_texts_md, scale, weights, itself, features.hard_texts)
    pictures = _entropies(features.texts_nd, features.all_images_md, scale, weights, itself, features.hard_images)
    return 0.5 * pair_mean(captions + pictures, features.weights_n)


def _entropies(
    anchors_nd: Tensor,
    others_md: Tensor,
    scale: Tensor | float,
    weights_nm: Tensor,
    itself_n: Tensor,
    extras: HardNegatives | None,
) -> Tensor:
    logits = scale * anchors_nd @ others_md.T + weights_nm.log()
    if extras:
        more = scale * anchors_nd @ extras.embeddings_md.T + extras.weights_nm(anchors_nd).log()
        logits = torch.cat([logits, more], dim=1)
    return F.cross_entropy(logits, itself_n, reduction="none")
