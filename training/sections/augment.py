"""`[augment]`: what is done to the pictures of a dual encoder before it sees them."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from twinlens.training.augment.recipe import (
    AugmentRecipe,
    Blur,
    Interpolation,
    Jitter,
    Probability,
    Solarize,
    ViewGroup,
)
from twinlens.training.sections.frozen import Frozen


class PairAugmentConfig(Frozen):
    """One view of each picture, drawn anew each time: crop and resize, flip, jitter, grayscale, blur, solarize.

    Whatever a caption may speak of must stay: the defaults only crop, as open_clip's trainer does. What differs from
    it: crops are cut from the square that serving would take of a picture, not from all of it.

    Attributes:
        crop_scale: Area of the crop as a share of the picture.
        crop_ratio: Width over height of the crop, drawn evenly in the logarithm.
        flip: Probability of a left-right flip, which makes "left" in a caption wrong.
        jitter: Of the colours; unless given, there is none.
        grayscale: Probability that the colours are dropped.
        blur: Unless given, there is none.
        solarize: Unless given, there is none.
        side: Side of the stored pictures that crops are cut from; None: the tower's own up to 32 pixels, else one and a
            half times that.
    """

    crop_scale: tuple[float, float] = (0.9, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: Probability = 0.0
    jitter: Jitter | None = None
    grayscale: Probability = 0.0
    blur: Blur | None = None
    solarize: Solarize | None = None
    side: int | None = Field(default=None, ge=8)

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        self._views()
        return self

    def recipe(self, size: int, interpolation: Interpolation) -> AugmentRecipe:
        """The same for a tower that takes pictures of `size`, resized as it does otherwise."""
        return AugmentRecipe(size=size, interpolation=interpolation, views=self._views())

    def _views(self) -> tuple[ViewGroup, ...]:
        return (
            ViewGroup(
                count=1,
                crop_scale=self.crop_scale,
                crop_ratio=self.crop_ratio,
                flip=self.flip,
                jitter=self.jitter,
                grayscale=self.grayscale,
                blur=self.blur,
                solarize=self.solarize,
            ),
        )
