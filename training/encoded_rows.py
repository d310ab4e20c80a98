"""Rows of an array through a tower, a few at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ROWS = 64


def encoded_rows(
    encode: Callable[[Tensor], Tensor],
    inputs: NDArray[np.generic],
    rows: NDArray[np.int64],
    device: torch.device,
) -> NDArray[np.float32]:
    """What `encode` makes of the rows, float32, shape (len(rows), d), without gradients.

    Args:
        encode: From inputs (m, …) to vectors (m, d), for any m.
        inputs: May be larger than memory (a mapped file).
        rows: Which of them, at least one, in which order.
        device: Where `encode` computes.
    """
    parts = (torch.from_numpy(inputs[rows[start : start + _ROWS]]) for start in range(0, len(rows), _ROWS))
    with torch.no_grad():
        encoded = [encode(part.to(device)).float().cpu() for part in parts]
    return np.asarray(torch.cat(encoded).numpy())
