"""Finds weights that training has destroyed, before they take the place of good ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def first_not_finite(state: Mapping[str, Any]) -> str | None:
    """The name of the first tensor of a state dict that holds NaN or an infinity; None where all are finite."""
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not torch.isfinite(value).all():
            return name
    return None
