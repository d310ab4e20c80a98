"""How much faster a reduced tower is than fp32, measured in turns so that other load hits both."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.runtime import TowerSession
from twinlens.encoders.tuning import in_turns

# Below this, a variant is not worth its file.
MIN_SPEEDUP = 1.1
BATCHES = (1, 8, 32)


def speedups(exact: TowerSession, reduced: TowerSession, inputs: Mapping[str, NDArray[Any]]) -> dict[int, float]:
    """Median time of fp32 over that of the reduced tower, by batch size.

    Args:
        exact: The fp32 tower.
        reduced: The other, on the same provider.
        inputs: Rows to run; repeated where a batch needs more.
    """
    found: dict[int, float] = {}
    for batch in BATCHES:
        feed = {name: np.resize(value, (batch, *value.shape[1:])) for name, value in inputs.items()}
        fp32_s, reduced_s = in_turns([partial(exact.run, feed), partial(reduced.run, feed)])
        found[batch] = fp32_s / reduced_s
    return found
