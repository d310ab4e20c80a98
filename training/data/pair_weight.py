"""How much a pair counts, as a source says it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def pair_weight(value: Any) -> float | None:
    """A number from 0 that float32 holds, written as a number or as text; None where it is none."""
    if isinstance(value, bool):
        return None
    try:
        weight = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return weight if math.isfinite(weight) and 0 <= weight <= float(np.finfo(np.float32).max) else None
