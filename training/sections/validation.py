"""`[validation]`: held-out pairs, what a run does with them, and how much of its parent it keeps."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from twinlens.training.sections.data import DataConfig
from twinlens.training.sections.frozen import Frozen


class ValidationConfig(Frozen):
    """Pairs that are held out, and what is decided by them.

    The run is measured on them at the start, every so many steps and at the end; `best.pt` is the best look. With
    `interpolate` the last word is a weighted mean of the weights that the run started from and those that it ended with
    (WiSE-FT, Wortsman et al. 2022): less is forgotten, and often the data itself gains.

    Attributes:
        share: Of the data's pictures, with all their captions, that are held out; where `data` is given, none are.
        data: A source of its own, with the keys of `[data]`.
        seed: Of the choice of pictures.
        every: Steps between two looks; 0: at the start and at the end only.
        best_by: The measure that decides, the higher the better; None: `mean_recall`, or `top_1` where captions name
            classes. See evaluations.csv for what is measured.
        interpolate: Mix the weights with those of `model.from_checkpoint`.
        interpolation_steps: How many shares of the trained weights are tried, evenly spread up to all of them.
        kept_gain: The smallest share is taken that keeps so much of the best one's gain over the parent: on a plateau,
            nearer to the parent is safer. 1: the best one.
        forgetting: A source with the keys of `[data]` that tells what must not be forgotten; never trained on.
        max_forgotten: Only shares are taken that lose no more than this of the parent's accuracy on `forgetting`
            (`text_to_image_r1`, or `top_1` where captions name classes).
    """

    share: float = Field(default=0.1, gt=0, lt=1)
    data: DataConfig | None = None
    seed: int = Field(default=0, ge=0, lt=2**32)
    every: int = Field(default=100, ge=0)
    best_by: str | None = Field(default=None, min_length=1)
    interpolate: bool = False
    interpolation_steps: int = Field(default=10, ge=1, le=100)
    kept_gain: float = Field(default=0.9, gt=0, le=1)
    forgetting: DataConfig | None = None
    max_forgotten: float = Field(default=0.02, ge=0, le=1)

    @model_validator(mode="after")
    def _something_uses_it(self) -> Self:
        own = {"interpolation_steps", "kept_gain", "max_forgotten"}
        changed = [key for key in sorted(own) if getattr(self, key) != type(self).model_fields[key].default]
        if changed and not self.interpolate:
            raise ValueError(f"{changed[0]} is for interpolate = true")
        if "max_forgotten" in changed and self.forgetting is None:
            raise ValueError("max_forgotten is of what must not be forgotten: name a source as forgetting")
        return self
