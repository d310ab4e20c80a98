"""The losses over pairs of picture and caption, by name."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from twinlens.training.losses.info_nce import info_nce
from twinlens.training.losses.pair_features import PairFeatures
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


def pair_loss_of(section: LossConfig) -> PairLoss:  # noqa: ARG001 - one name so far
    """The loss that a configuration names."""
    return _info_nce


def _info_nce(features: PairFeatures, scale: Tensor, bias: Tensor | None) -> Tensor:
    return info_nce(features, scale) + _untrained(bias)


def _untrained(*parameters: Tensor | None) -> Tensor | float:
    """0, with a gradient of 0: data-parallel training waits for a gradient of every parameter."""
    return sum((0.0 * parameter for parameter in parameters if parameter is not None), start=0.0)
