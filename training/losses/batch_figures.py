"""What the log says of a batch besides its loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from twinlens.training.losses.pair_features import HardNegatives, PairFeatures

_CHUNK = 4096


@torch.no_grad()
def batch_figures(features: PairFeatures, scale: Tensor) -> dict[str, Tensor]:
    """Figures over the own pairs, scalars without gradients; their means over the ranks are those of the whole batch.

    Like the sigmoid loss, they are taken over chunks of the batch, with memory O(n · chunk).

    Args:
        features: What is compared.
        scale: The factor on cosines.

    Returns:
        `accuracy`: share of pictures whose own caption scores best of all, hard ones included and those that are as
        right aside; `positive_cosine` and `negative_cosine`: means over the pairs, and over the others in the batch
        that are not as right; `bound`: log N - L in nats, the least mutual information of pictures and captions that
        the InfoNCE loss L of the batch vouches for (van den Oord et al. 2018, eq. 5), at most log N, whatever the loss
        that is trained; hard negatives are left out, for they are no draws from the data, and N counts what is not as
        right; `scale` and `temperature`, its inverse.
    """
    images, texts = features.images_nd, features.texts_nd
    own = (images * texts).sum(dim=1)
    captions = _Rivals(images, features.all_texts_md, scale, features)
    pictures = _Rivals(texts, features.all_images_md, scale, features)
    best = captions.best.maximum(_best_extra(images, features.hard_texts))
    entropies = captions.log_sum + pictures.log_sum - 2 * scale * own
    candidates = captions.count + 1
    return {
        "accuracy": (own > best).float().mean(),
        "positive_cosine": own.mean(),
        "negative_cosine": (captions.total / captions.count.clamp_min(1)).mean(),
        "bound": (candidates.log() - 0.5 * entropies).mean(),
        "scale": scale.detach(),
        "temperature": 1 / scale.detach(),
    }


class _Rivals:
    """Over the columns that are not as right as an anchor's own: best, sum and count; and log Σ exp with its own."""

    def __init__(self, anchors: Tensor, others: Tensor, scale: Tensor, features: PairFeatures) -> None:
        self.best = anchors.new_full((len(anchors),), -math.inf)
        self.total = anchors.new_zeros(len(anchors))
        self.count = anchors.new_zeros(len(anchors))
        self.log_sum = anchors.new_full((len(anchors),), -math.inf)
        itself = features.itself_n[:, None]
        for start in range(0, len(others), _CHUNK):
            columns = slice(start, start + _CHUNK)
            cosines = anchors @ others[columns].T
            is_own = itself == torch.arange(start, start + cosines.shape[1], device=anchors.device)
            right = is_own if features.equal is None else is_own | features.equal[:, columns]
            rivals = cosines.masked_fill(right, -math.inf)
            self.best = self.best.maximum(rivals.amax(dim=1))
            self.total += cosines.masked_fill(right, 0.0).sum(dim=1)
            self.count += (~right).sum(dim=1)
            terms = scale * cosines.masked_fill(right & ~is_own, -math.inf)
            self.log_sum = torch.logaddexp(self.log_sum, torch.logsumexp(terms, dim=1))


def _best_extra(anchors: Tensor, extras: HardNegatives | None) -> Tensor:
    best = anchors.new_full((len(anchors),), -math.inf)
    for start in range(0, len(extras) if extras else 0, _CHUNK):
        assert extras is not None  # noqa: S101 - for the type checker
        columns = slice(start, start + _CHUNK)
        cosines = anchors @ extras.embeddings_md[columns].T
        best = best.maximum(cosines.masked_fill(extras.weights_nm(anchors, columns) == 0, -math.inf).amax(dim=1))
    return best
