"""Projection and prediction heads: the small perceptrons between an encoder and the loss."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import nn

LastNorm = bool | Literal["affine-free"]


def mlp_head(
    sizes: Sequence[int],
    *,
    norm: Literal["batch", "none"] = "batch",
    last_norm: LastNorm = False,
    bias: bool | None = None,
    last_bias: bool | None = None,
) -> nn.Sequential:
    """A multi-layer perceptron with ReLU after every layer but the last.

    The papers' heads, for an encoder of width h (the biases are those of the authors' code):

    ========================================  =====================================================================
    SimCLR (Chen et al. 2020, §2.1)           `mlp_head([h, h, 128], last_norm=True)`
    MoCo v2 (Chen et al. 2020)                `mlp_head([h, h, 128], norm="none")`
    MoCo v3 (Chen et al. 2021), projection    `mlp_head([h, 4096, 4096, 256], last_norm="affine-free")`
    MoCo v3, prediction                       `mlp_head([256, 4096, 256], last_norm="affine-free")`
    BYOL (Grill et al. 2020), both            `mlp_head([h or 256, 4096, 256], bias=True, last_bias=False)`
    SimSiam (Chen & He 2021), projection      `mlp_head([h, 2048, 2048, 2048], last_norm="affine-free")`
    SimSiam, prediction                       `mlp_head([2048, 512, 2048])`
    SwAV (Caron et al. 2020)                  `mlp_head([h, 2048, 128], bias=True)`
    Barlow Twins (Zbontar et al. 2021)        `mlp_head([h, 8192, 8192, 8192], last_bias=False)`
    VICReg (Bardes et al. 2022)               `mlp_head([h, 8192, 8192, 8192], bias=True, last_bias=False)`
    a linear head                             `mlp_head([h, 128])`
    ========================================  =====================================================================

    (The last norm of SimCLR's authors has a gain but no shift; here it has both, as in later implementations.)

    Args:
        sizes: Widths from the input to the output, at least two; one linear layer between each two neighbours.
        norm: What stands between a hidden layer and its ReLU.
        last_norm: Batch norm after the last layer as well; "affine-free": without gain and shift.
        bias: Of the hidden layers; None: only where no batch norm follows, which would cancel it.
        last_bias: Of the last layer; None: likewise.

    Returns:
        Takes features of shape (n, sizes[0]), gives (n, sizes[-1]).

    Raises:
        ValueError: if there are fewer than two sizes, or one is not positive.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"a head needs at least two positive sizes, found {list(sizes)}")
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(sizes[:-1]):
        layers.append(nn.Linear(width_in, width_out, bias=norm == "none" if bias is None else bias))
        if norm == "batch":
            layers.append(nn.BatchNorm1d(width_out))
        layers.append(nn.ReLU(inplace=True))
    layers.append(nn.Linear(sizes[-2], sizes[-1], bias=last_norm is False if last_bias is None else last_bias))
    if last_norm is not False:
        layers.append(nn.BatchNorm1d(sizes[-1], affine=last_norm is True))
    return nn.Sequential(*layers)
