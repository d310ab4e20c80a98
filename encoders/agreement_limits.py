"""How close to fp32 a tower of reduced precision has to stay: at export, on loading, and where it is tuned."""

from __future__ import annotations

from typing import Final

MIN_MEAN_COSINE: Final = 0.995
MIN_WORST_COSINE: Final = 0.98
