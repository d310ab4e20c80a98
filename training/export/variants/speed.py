"""How much faster a reduced tower is than fp32, measured in turns so that other load hits both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.runtime import TowerSession

# Below this, a variant is not worth its file.
MIN_SPEEDUP = 1.1
BATCHES = (1, 8, 32)
_ROUNDS = 9


def speedups(
    exact: TowerSession, reduced: TowerSession, inputs: Mapping[str, NDArray[Any]], rounds: int = _ROUNDS
) -> dict[int, float]:
    """Median time of fp32 over that of the reduced tower, by batch size.

    Args:
        exact: The fp32 tower.
        reduced: The other, on the same provider.
        inputs: At least 32 rows, or fewer: then they are repeated.
        rounds: Turns for each batch size.
    """
    found: dict[int, float] = {}
    for batch in BATCHES:
        feed = {name: np.resize(value, (batch, *value.shape[1:])) for name, value in inputs.items()}
        times: tuple[list[float], list[float]] = ([], [])
        for session in (exact, reduced):
            session.run(feed)
        for _ in range(rounds):
            for session, spent in zip((exact, reduced), times, strict=True):
                start = time.perf_counter()
                session.run(feed)
                spent.append(time.perf_counter() - start)
        found[batch] = statistics.median(times[0]) / statistics.median(times[1])
    return found
