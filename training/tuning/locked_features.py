"""Computes what locked parts of towers make of the data once, instead of at every step.

A locked part gives the same features for a picture at every step, as long as nothing random enters. So the features
take the place of pixels and token ids: `DualEncoder` takes either, and a step of training then costs only what is open.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from twinlens.training.data.pairs import Pairs
from twinlens.training.encoded_rows import encoded_rows
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.modules.evaluation_mode import evaluation_mode
from twinlens.training.sections.tuning import TuningConfig


@dataclasses.dataclass(frozen=True)
class Known:
    """Whose features do not change over a run.

    Attributes:
        images: Of pictures.
        texts: Of captions.
    """

    images: bool
    texts: bool


def known_features(tuning: TuningConfig, *, augmented: bool) -> Known:
    """Which towers are locked as a whole, for the whole run, and see the same at every step.

    A `residual` on top of a locked image tower is open all the same; it takes the tower's features.

    Args:
        tuning: What is locked.
        augmented: Whether pictures are shown in changing views.
    """
    stay = tuning.unlock_steps == 0
    return Known(
        images=stay and tuning.lock_image is True and not augmented,
        texts=stay and tuning.lock_text is True,
    )


def with_features(pairs: Pairs, towers: DualEncoder, known: Known) -> Pairs:
    """The pairs with features, float32, where pixels and token ids were.

    They are computed in fp32 and in evaluation mode, as locked parts always are; the towers' mode stays what it was.

    Args:
        pairs: With pixels and token ids.
        towers: As they are at the start of a run.
        known: Which of both to compute.
    """
    pixels, ids = pairs.pixels_nhwc, pairs.token_ids_ml
    if known.images and len(pairs):
        used = np.unique(pairs.slots)  # held-out pictures lie in the same array
        features = _encoded(towers, towers.image_features, pixels, used)
        pairs = dataclasses.replace(pairs, pixels_nhwc=features, slots=np.searchsorted(used, pairs.slots))
    if known.texts and len(ids):
        pairs = dataclasses.replace(
            pairs, token_ids_ml=_encoded(towers, towers.text_features, ids, np.arange(len(ids)))
        )
    return pairs


def _encoded(
    towers: DualEncoder, encode: Callable[[Tensor], Tensor], inputs: NDArray[np.generic], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    with evaluation_mode(towers):
        return encoded_rows(encode, inputs, rows, towers.mean.device)
