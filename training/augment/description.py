"""Says in words what a recipe does at its size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from twinlens.training.augment.recipe import AugmentRecipe, View


def describe(recipe: AugmentRecipe) -> list[str]:
    """A line per group of views, and one for what its size changes, if anything."""
    lines = []
    first = 1
    for _, group in groupby(recipe.resolved(), key=lambda view: view.group):
        views = list(group)
        last = first + len(views) - 1
        name = f"view {first}" if first == last else f"views {first}-{last}"
        lines.append(f"{name}: {', '.join(_parts(views[0], recipe.interpolation))}")
        first = last + 1
    changes = _changes(recipe) if recipe.is_small else []
    if changes:
        lines.append(f"at {recipe.size} px, below {recipe.small.below}: {', '.join(changes)}")
    return lines


def _parts(view: View, interpolation: str) -> list[str]:
    parts = [f"{view.side} px {interpolation}"]
    whole = view.crop_scale == (1.0, 1.0) and view.crop_ratio == (1.0, 1.0)
    parts.append("whole picture" if whole else f"crop {_range(view.crop_scale)} of the area")
    if view.flip:
        parts.append(f"flip {view.flip:g}")
    if view.jitter is not None:
        strengths = "/".join(
            f"{strength:g}"
            for strength in (view.jitter.brightness, view.jitter.contrast, view.jitter.saturation, view.jitter.hue)
        )
        parts.append(f"jitter {view.jitter.probability:g} by {strengths}")
    if view.grayscale:
        parts.append(f"grayscale {view.grayscale:g}")
    if view.blur is not None:
        parts.append(f"blur {view.blur.probability:g} of {_range(view.blur.sigma)} px")
    if view.solarize is not None and view.solarize.probability:
        parts.append(f"solarize {view.solarize.probability:g} from {view.solarize.threshold:g}")
    return parts


def _changes(recipe: AugmentRecipe) -> list[str]:
    small, changes = recipe.small, []
    if not small.blur and any(group.blur is not None for group in recipe.views):
        changes.append("no blur")
    if not small.solarize and any(group.solarize is not None for group in recipe.views):
        changes.append("no solarize")
    if small.jitter != 1 and any(group.jitter is not None for group in recipe.views):
        changes.append(f"jitter times {small.jitter:g}")
    if small.crop_scale is not None:
        changes.append(f"crop {_range(small.crop_scale)}")
    if small.local_crop_scale is not None and recipe.local_views:
        changes.append(f"local crop {_range(small.local_crop_scale)}")
    return changes


def _range(pair: Sequence[float]) -> str:
    return f"{pair[0]:g}" if pair[0] == pair[1] else f"{pair[0]:g}-{pair[1]:g}"
