"""Stage 3: which of the survivors are taken."""

from __future__ import annotations

from typing import Literal

import numpy as np

from twinlens.training.mining.filters import Survivor

Strategy = Literal["nearest", "random"]


def sample(
    survivors: tuple[Survivor, ...], count: int, strategy: Strategy, rng: np.random.Generator
) -> tuple[Survivor, ...]:
    """At most `count` of them: the nearest, or any with equal chance; nearest first."""
    if len(survivors) <= count:
        return survivors
    if strategy == "nearest":
        return survivors[:count]
    return tuple(survivors[i] for i in sorted(rng.choice(len(survivors), size=count, replace=False)))
