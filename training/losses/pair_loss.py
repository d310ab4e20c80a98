"""The losses over pairs of picture and caption, by name."""

from __future__ import annotations

import math
from typing import Protocol

from torch import Tensor

from twinlens.training.losses.debiased import debiased_info_nce
from twinlens.training.losses.info_nce import info_nce
from twinlens.training.losses.pair_features import PairFeatures
from twinlens.training.losses.ranking import ranking_loss
from twinlens.training.losses.sigmoid import STARTING_BIAS, STARTING_LOG_SCALE, sigmoid_loss
from twinlens.training.sections.loss import LossConfig


class PairLoss(Protocol):
    """What a dual encoder is trained by."""

    def __call__(self, features: PairFeatures, scale: Tensor, bias: Tensor | None) -> Tensor:
        """The mean loss over the own pairs, a scalar.

        Args:
            features: What is compared.
            scale: The learned factor on cosines, a scalar.
            bias: What is added to them after that, a scalar; None: the model has none.
        """


def pair_loss_of(section: LossConfig) -> PairLoss:
    """The loss that a configuration names."""

    def loss(features: PairFeatures, scale: Tensor, bias: Tensor | None) -> Tensor:
        match section.name:
            case "info_nce":
                return info_nce(features, scale) + _untrained(bias)
            case "debiased":
                return debiased_info_nce(features, scale, tau_plus=section.tau_plus) + _untrained(bias)
            case "ranking":
                return ranking_loss(features, margin=section.margin) + _untrained(scale, bias)
            case "sigmoid":
                if bias is None:
                    raise ValueError("the sigmoid loss needs a model with a bias: see starting_scale")
                return sigmoid_loss(features, scale, bias, chunk_size=section.chunk_size)

    return loss


def starting_scale(section: LossConfig) -> tuple[float, float | None]:
    """What a model from scratch starts from: the logarithm of the scale, and the bias; None: it has none."""
    if section.name == "sigmoid":
        return STARTING_LOG_SCALE, STARTING_BIAS
    return math.log(1 / 0.07), None  # Radford et al. 2021, §2.5


def _untrained(*parameters: Tensor | None) -> Tensor | float:
    """0, with a gradient of 0: data-parallel training waits for a gradient of every parameter."""
    return sum((0.0 * parameter for parameter in parameters if parameter is not None), start=0.0)
