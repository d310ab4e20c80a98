"""The published ablations of the augmentation (SimCLR, Chen et al. 2020, figure 5), as changes of a recipe."""

from __future__ import annotations

from enum import StrEnum

from twinlens.training.augment.recipe import AugmentRecipe, ViewGroup


class Ablation(StrEnum):
    """What is kept of a recipe: the crop (with the flip), the colours' jitter (with grayscale), both, or none."""

    CROP = "crop"
    JITTER = "jitter"
    BOTH = "both"
    NONE = "none"


def ablated(recipe: AugmentRecipe, kept: Ablation) -> AugmentRecipe:
    """The recipe with only some of its operations; sizes and the number of views stay.

    Blur and solarisation are left out of all four, so that they differ in crop and colour alone. Without the crop a
    view is the whole picture, resized. A recipe that has no jitter of its own gets none.
    """
    return recipe.model_copy(
        update={
            "views": tuple(_group(group, kept) for group in recipe.views),
            "small": recipe.small
            if kept in {Ablation.CROP, Ablation.BOTH}
            else recipe.small.model_copy(update={"crop_scale": None, "local_crop_scale": None}),
        }
    )


def _group(group: ViewGroup, kept: Ablation) -> ViewGroup:
    removed: dict[str, object] = {"blur": None, "solarize": None}
    if kept not in {Ablation.CROP, Ablation.BOTH}:
        removed |= {"crop_scale": (1.0, 1.0), "crop_ratio": (1.0, 1.0), "flip": 0.0}
    if kept not in {Ablation.JITTER, Ablation.BOTH}:
        removed |= {"jitter": None, "grayscale": 0.0}
    return group.model_copy(update=removed)
