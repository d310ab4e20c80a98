"""The hinge on the rank of the right caption, from before softmax losses were usual."""

from __future__ import annotations

from torch import Tensor

from twinlens.training.losses.pair_features import HardNegatives, PairFeatures
from twinlens.training.losses.pair_mean import pair_mean


def ranking_loss(features: PairFeatures, *, margin: float = 0.1) -> Tensor:
    """What scores less than a margin below the right one costs the difference (DeViSE, Frome et al. 2013, eq. 1).

    With cosines c_ij = ⟨image_i, text_j⟩ the loss is ½ (A + B), where

        A = mean_i [ Σ_{j ≠ i} m_ij max(0, margin - c_ii + c_ij) + Σ_e w_ie max(0, margin - c_ii + c_ie) ]

    and B is the same with the two sides exchanged (Kiros et al. 2014), so that captions find pictures too; the original
    has A alone, for its captions are a fixed list of labels. The weight m_ij is 0 for equals, else that of the
    negative, 1 by default. It has no temperature, and all that is right by the margin teaches nothing: a historic
    baseline.

    Args:
        features: What is compared.
        margin: 0.1 in DeViSE.

    Returns:
        The loss over the own pairs, a scalar.

    Raises:
        ValueError: if the margin is not positive: 0 is met by embeddings that are all the same.
    """
    if margin <= 0:
        raise ValueError(f"the margin must be positive, found {margin}")
    weights = features.weights_nm().scatter(1, features.itself_n[:, None], 0.0)
    least = (features.images_nd * features.texts_nd).sum(dim=1, keepdim=True) - margin
    captions = _hinges(features.images_nd, features.all_texts_md, least, weights, features.hard_texts)
    pictures = _hinges(features.texts_nd, features.all_images_md, least, weights, features.hard_images)
    return 0.5 * pair_mean(captions + pictures, features.weights_n)


def _hinges(
    anchors_nd: Tensor, others_md: Tensor, least_n1: Tensor, weights_nm: Tensor, extras: HardNegatives | None
) -> Tensor:
    hinges = (weights_nm * (anchors_nd @ others_md.T - least_n1).relu()).sum(dim=1)
    if extras:
        more = (anchors_nd @ extras.embeddings_md.T - least_n1).relu()
        hinges = hinges + (extras.weights_nm(anchors_nd) * more).sum(dim=1)
    return hinges
