"""What is done to a picture before a method sees it, as data: the section [augment] of a configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Probability = Annotated[float, Field(ge=0, le=1)]
Interpolation = Literal["bilinear", "bicubic"]

# Of one picture, all groups together; the papers' multi-crop makes ten.
MOST_VIEWS = 64


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Jitter(_Frozen):
    """Colour jitter: brightness, contrast, saturation and hue in a random order (torchvision's `ColorJitter`).

    Attributes:
        probability: That a picture is jittered at all.
        brightness: The factor is drawn from [max(0, 1 − brightness), 1 + brightness].
        contrast: Likewise.
        saturation: Likewise.
        hue: The turn is drawn from [−hue, hue], in turns of the colour circle.
    """

    probability: Probability = 0.8
    brightness: float = Field(default=0.0, ge=0)
    contrast: float = Field(default=0.0, ge=0)
    saturation: float = Field(default=0.0, ge=0)
    hue: float = Field(default=0.0, ge=0, le=0.5)


class Blur(_Frozen):
    """Gaussian blur, with the picture reflected at its edges.

    Attributes:
        probability: That a picture is blurred.
        sigma: Range of the standard deviation in pixels of the view, drawn uniformly.
        kernel: Width of the kernel as a share of the view's side (SimCLR: 0.1), made odd: 23 at 224, 7
            at 64; None: three of the largest sigma on either side.
    """

    probability: Probability = 0.5
    sigma: tuple[float, float] = (0.1, 2.0)
    kernel: float | None = Field(default=None, gt=0, le=1)

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if not 0 < self.sigma[0] <= self.sigma[1]:
            raise ValueError(f"sigma must be a rising pair of positive numbers, found {list(self.sigma)}")
        return self

    def taps(self, side: int) -> int:
        """The kernel's width in pixels for views of `side`: odd, and small enough to be reflected."""
        half = math.ceil(3 * self.sigma[1]) if self.kernel is None else int(self.kernel * side / 2)
        return 2 * min(max(1, half), side - 1) + 1


class Solarize(_Frozen):
    """Inverts what is bright.

    Attributes:
        probability: That a picture is solarised.
        threshold: What is as bright or brighter is inverted; on the scale 0 to 1.
    """

    probability: Probability = 0.2
    threshold: float = Field(default=0.5, ge=0, le=1)


class ViewGroup(_Frozen):
    """Views that are made alike: crop and resize, flip, jitter, grayscale, blur, solarize, in this order.

    Attributes:
        count: How many views of each picture.
        size: Side of the view as a share of the run's `size`. Shares below 1 (local views) are rounded to a multiple of
            16 pixels, or of 4 where that would be more than the run's side: 96 at 224, 32 at 64, 16 at 32.
        crop_scale: Area of the crop as a share of the picture; [1, 1] with `crop_ratio` [1, 1] keeps all of it.
        crop_ratio: Width over height of the crop, drawn evenly in the logarithm.
        flip: Probability of a left-right flip.
        jitter: Of the colours; unless given, there is none.
        grayscale: Probability that the colours are dropped.
        blur: Unless given, there is none.
        solarize: Unless given, there is none.
    """

    count: int = Field(default=2, ge=1)
    size: float = Field(default=1.0, gt=0, le=1)
    crop_scale: tuple[float, float] = (1.0, 1.0)
    crop_ratio: tuple[float, float] = (1.0, 1.0)
    flip: Probability = 0.0
    jitter: Jitter | None = None
    grayscale: Probability = 0.0
    blur: Blur | None = None
    solarize: Solarize | None = None

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        if not 0 < self.crop_scale[0] <= self.crop_scale[1] <= 1:
            raise ValueError(f"crop_scale must be a rising pair in (0, 1], found {list(self.crop_scale)}")
        if not 0 < self.crop_ratio[0] <= self.crop_ratio[1]:
            raise ValueError(f"crop_ratio must be a rising pair of positive numbers, found {list(self.crop_ratio)}")
        return self


class SmallPictures(_Frozen):
    """What a recipe made for large photos changes where the run's `size` is small, as the papers do for CIFAR-10.

    Attributes:
        below: Runs of a smaller `size` (in pixels) are changed; 0 changes none.
        blur: Whether they are blurred.
        jitter: Factor on the four strengths of the jitter (SimCLR, appendix B.9: half of ImageNet's).
        solarize: Whether they are solarised.
        crop_scale: Takes the place of the global views' `crop_scale`.
        local_crop_scale: Takes the place of the local views' `crop_scale`: a twentieth of a tiny picture shows nothing.
    """

    below: int = Field(default=0, ge=0)
    blur: bool = True
    jitter: float = Field(default=1.0, ge=0)
    solarize: bool = True
    crop_scale: tuple[float, float] | None = None
    local_crop_scale: tuple[float, float] | None = None

    @model_validator(mode="after")
    def _shares(self) -> Self:
        for name in ("crop_scale", "local_crop_scale"):
            scale = getattr(self, name)
            if scale is not None and not 0 < scale[0] <= scale[1] <= 1:
                raise ValueError(f"{name} must be a rising pair in (0, 1], found {list(scale)}")
        return self


@dataclass(frozen=True, slots=True)
class View:
    """One view to make of each picture, in pixels.

    Attributes:
        group: Which of the recipe's groups it belongs to.
        side: Of the square view.
        local: Whether it is smaller than the run's size (multi-crop).
        taps: Width of the blur's kernel; 0 without blur.
    """

    group: int
    side: int
    local: bool
    interpolation: Interpolation
    crop_scale: tuple[float, float]
    crop_ratio: tuple[float, float]
    flip: float
    jitter: Jitter | None
    grayscale: float
    blur: Blur | None
    taps: int
    solarize: Solarize | None


class AugmentRecipe(_Frozen):
    """The section [augment]. All sizes are relative to `size`, so one recipe serves small pictures and large.

    Attributes:
        size: Of the run: side of a global view in pixels, and of the pictures that the exported encoder takes.
        interpolation: Of the resize, with antialiasing.
        small: What changes where `size` is small.
        views: Groups of views, the global ones (`size` 1) first.
    """

    size: int = Field(default=32, ge=8)
    interpolation: Interpolation = "bilinear"
    small: SmallPictures = SmallPictures()
    views: tuple[ViewGroup, ...] = (ViewGroup(),)

    @model_validator(mode="after")
    def _global_first(self) -> Self:
        shares = [group.size for group in self.views]
        if not shares or shares[0] != 1.0:
            raise ValueError("views must begin with a group of size 1.0 (the global views)")
        if (count := sum(group.count for group in self.views)) > MOST_VIEWS:
            raise ValueError(f"views: at most {MOST_VIEWS} of a picture, found {count}")
        if shares != sorted(shares, key=lambda share: share < 1.0):
            raise ValueError("views of size 1.0 (global) must come before smaller ones (local)")
        return self

    @property
    def global_views(self) -> int:
        """How many views of each picture have the run's size."""
        return sum(group.count for group in self.views if group.size == 1.0)

    @property
    def local_views(self) -> int:
        """How many are smaller."""
        return sum(group.count for group in self.views if group.size < 1.0)

    @property
    def is_small(self) -> bool:
        """Whether the rules for small pictures apply."""
        return self.size < self.small.below

    def resolved(self) -> tuple[View, ...]:
        """Every view, in order, in pixels and with the rules for small pictures applied."""
        views: list[View] = []
        for index, group in enumerate(self.views):
            views.extend([self._view(index, group)] * group.count)
        return tuple(views)

    def _view(self, index: int, group: ViewGroup) -> View:
        small = self.small if self.is_small else SmallPictures()
        local = group.size < 1.0
        side = _local_side(group.size, self.size) if local else self.size
        blur = group.blur if small.blur and group.blur is not None and group.blur.probability > 0 else None
        return View(
            group=index,
            side=side,
            local=local,
            interpolation=self.interpolation,
            crop_scale=(small.local_crop_scale if local else small.crop_scale) or group.crop_scale,
            crop_ratio=group.crop_ratio,
            flip=group.flip,
            jitter=None if group.jitter is None else _scaled(group.jitter, small.jitter),
            grayscale=group.grayscale,
            blur=blur,
            taps=0 if blur is None else blur.taps(side),
            solarize=group.solarize if small.solarize else None,
        )


def _local_side(share: float, size: int) -> int:
    for step in (16, 4, 1):
        side = max(1, round(share * size / step)) * step
        if side < size:
            return side
    return size


def _scaled(jitter: Jitter, factor: float) -> Jitter | None:
    if factor == 0 or jitter.probability == 0:
        return None
    return jitter.model_copy(
        update={
            "brightness": jitter.brightness * factor,
            "contrast": jitter.contrast * factor,
            "saturation": jitter.saturation * factor,
            "hue": min(0.5, jitter.hue * factor),
        }
    )
