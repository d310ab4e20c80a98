"""The random numbers of one view of a batch, drawn for all its pictures at once, apart from the work they decide."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from twinlens.training.augment.recipe import View

# As in torchvision's RandomResizedCrop: shapes that do not fit are drawn again, then the whole picture is taken.
_TRIES = 10
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


@dataclass(frozen=True)
class Draws:
    """What is done to each of n pictures; all tensors are on the CPU.

    Attributes:
        boxes: int64, (n, 4): top, left, height and width of the crop in the stored picture.
        flipped: bool, (n,).
        jittered: bool, (n,).
        order: int64, (n, 4): which of brightness, contrast, saturation and hue comes first, second…
        factors: float32, (n, 4): of brightness, contrast and saturation; the turn of the hue.
        gray: bool, (n,).
        sigmas: float32, (n,): of the blur; 0: none.
        solarized: bool, (n,).
    """

    boxes: Tensor
    flipped: Tensor
    jittered: Tensor
    order: Tensor
    factors: Tensor
    gray: Tensor
    sigmas: Tensor
    solarized: Tensor

    def __getitem__(self, part: slice) -> Draws:
        return replace(self, **{name: value[part] for name, value in vars(self).items()})


def draw(view: View, count: int, source_side: int, generator: torch.Generator) -> Draws:
    """Draws one view's parameters, with the distributions of torchvision's transforms.

    Args:
        view: What may happen.
        count: Pictures.
        source_side: Side of the stored pictures.
        generator: On the CPU, so that every device gets the same views.
    """

    def uniform(low: float, high: float) -> Tensor:
        return torch.empty(count).uniform_(low, high, generator=generator) if low < high else torch.full((count,), low)

    def happens(probability: float) -> Tensor:
        return torch.rand(count, generator=generator) < probability

    jitter, blur, solarize = view.jitter, view.blur, view.solarize
    boxes = _boxes(view, count, source_side, generator)
    flipped = happens(view.flip)
    factors = torch.ones(count, 4)
    factors[:, HUE] = 0.0
    if jitter is not None:
        strengths = {BRIGHTNESS: jitter.brightness, CONTRAST: jitter.contrast, SATURATION: jitter.saturation}
        for column, strength in strengths.items():
            factors[:, column] = uniform(max(0.0, 1 - strength), 1 + strength)
        factors[:, HUE] = uniform(-jitter.hue, jitter.hue)
    order = torch.rand(count, 4, generator=generator).argsort(dim=1)
    jittered = happens(0.0 if jitter is None else jitter.probability)
    gray = happens(view.grayscale)
    blurred = happens(0.0 if blur is None else blur.probability)
    sigmas = uniform(*blur.sigma) if blur is not None else torch.zeros(count)
    solarized = happens(0.0 if solarize is None else solarize.probability)
    return Draws(boxes, flipped, jittered, order, factors, gray, sigmas.where(blurred, torch.zeros(())), solarized)


def _boxes(view: View, count: int, side: int, generator: torch.Generator) -> Tensor:
    """Crops as torchvision draws them; the picture is square."""
    shape = (count, _TRIES)
    area = side * side * torch.empty(shape, dtype=torch.float64).uniform_(*view.crop_scale, generator=generator)
    low, high = (math.log(bound) for bound in view.crop_ratio)
    ratio = torch.empty(shape, dtype=torch.float64).uniform_(low, high, generator=generator).exp()
    widths = (area * ratio).sqrt().round()
    heights = (area / ratio).sqrt().round()
    fits = (widths > 0) & (widths <= side) & (heights > 0) & (heights <= side)
    first = fits.to(torch.int8).argmax(dim=1, keepdim=True)
    fallback = torch.tensor(_central(view.crop_ratio, side), dtype=torch.float64)
    found = fits.any(dim=1)
    height = heights.gather(1, first)[:, 0].where(found, fallback[0])
    width = widths.gather(1, first)[:, 0].where(found, fallback[1])
    top = (torch.rand(count, dtype=torch.float64, generator=generator) * (side - height + 1)).floor()
    left = (torch.rand(count, dtype=torch.float64, generator=generator) * (side - width + 1)).floor()
    top = top.where(found, ((side - height) / 2).floor())
    left = left.where(found, ((side - width) / 2).floor())
    return torch.stack([top, left, height, width], dim=1).long()


def _central(ratios: tuple[float, float], side: int) -> tuple[float, float]:
    """Height and width of the central crop that is taken where no try fits."""
    if min(ratios) > 1:
        return float(round(side / min(ratios))), float(side)
    if max(ratios) < 1:
        return float(side), float(round(side * max(ratios)))
    return float(side), float(side)
