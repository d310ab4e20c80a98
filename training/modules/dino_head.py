"""DINO's projection head."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DinoHead(nn.Module):
    """A perceptron with GELU, unit length, then a last layer whose rows have unit length (Caron et al. 2021, App. C).

    The outputs are cosines with k learned directions, the counterpart of SwAV's prototypes.

    Attributes:
        perceptron: Features to the bottleneck.
        last: The directions before they are normalised, shape (k, bottleneck).
        gain: Length of each row; not trained unless asked for.
    """

    def __init__(
        self,
        dim: int,
        outputs: int,
        *,
        hidden: int = 2048,
        bottleneck: int = 256,
        norm: Literal["batch", "none"] = "none",
        train_gain: bool = False,
    ) -> None:
        """Builds the three-layer head of the paper.

        Args:
            dim: Of the features.
            outputs: k.
            hidden: Width of the two hidden layers.
            bottleneck: Width before the last layer.
            norm: Batch norm before each GELU, or none: with a ViT the whole system is then free of batch norm.
            train_gain: Let the rows' lengths be learned (`norm_last_layer=False`): better at times, less stable.
        """
        super().__init__()
        layers: list[nn.Module] = []
        for width_in in (dim, hidden):
            layers.append(nn.Linear(width_in, hidden))
            if norm == "batch":
                layers.append(nn.BatchNorm1d(hidden))
            layers.append(nn.GELU())
        layers.append(nn.Linear(hidden, bottleneck))
        self.perceptron = nn.Sequential(*layers)
        for layer in self.perceptron:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.last = nn.Parameter(nn.Linear(bottleneck, outputs, bias=False).weight.detach())
        self.gain = nn.Parameter(torch.ones(outputs, 1), requires_grad=train_gain)

    def embed(self, features_nd: Tensor) -> Tensor:
        """The unit vectors before the last layer, shape (n, bottleneck)."""
        return F.normalize(self.perceptron(features_nd), dim=1)

    def scores(self, embeddings: Tensor) -> Tensor:
        """The last layer, on what `embed` gave: shape (n, k)."""
        return F.linear(embeddings, self.gain * F.normalize(self.last, dim=1))

    def forward(self, features_nd: Tensor) -> Tensor:
        """Features of shape (n, dim) to outputs of shape (n, k)."""
        return self.scores(self.embed(features_nd))
