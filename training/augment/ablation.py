"""The published ablations of augmentation: what is left when only cropping, only jitter, or both are kept."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from twinlens.training.augment.recipe import AugmentRecipe, ViewGroup

_WHOLE = (1.0, 1.0)


class Ablation(StrEnum):
    """What is kept of a recipe (SimCLR, Chen et al. 2020, figure 5)."""

    CROP = "crop"
    JITTER = "jitter"
    BOTH = "both"
    NONE = "none"


def ablated(recipe: AugmentRecipe, keep: Ablation) -> AugmentRecipe:
    """The recipe with everything else switched off; the number and sizes of views stay.

    Args:
        recipe: Of any method.
        keep: `crop`: random crops and flips; `jitter`: colour jitter and grayscale; `both`: these four; `none`: every
            view is the whole picture.
    """
    return recipe.model_copy(update={"views": tuple(_group(group, keep) for group in recipe.views)})


def _group(group: ViewGroup, keep: Ablation) -> ViewGroup:
    off: dict[str, Any] = {"blur": None, "solarize": None}
    if keep not in {Ablation.CROP, Ablation.BOTH}:
        off |= {"crop_scale": _WHOLE, "crop_ratio": _WHOLE, "flip": 0.0}
    if keep not in {Ablation.JITTER, Ablation.BOTH}:
        off |= {"jitter": None, "grayscale": 0.0}
    return group.model_copy(update=off)
