"""`[hard_negatives]`: negatives in the batch that are hard to tell from what is right."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from twinlens.training.sections.frozen import Frozen, NamedPath

_MINED = ("texts_per_anchor", "images_per_anchor", "pairs_per_anchor")


class HardNegativesConfig(Frozen):
    """Negatives that were mined (`twinlens mine`), and captions that the data itself calls wrong; see `HardShare`.

    Attributes:
        manifest: What `twinlens mine` wrote; without one there are no mined negatives.
        texts_per_anchor: Mined wrong captions for a pair; without a manifest 0.
        images_per_anchor: Mined wrong pictures for a pair.
        pairs_per_anchor: Whole mined pairs that take the place of random ones in the batch.
        wrong_captions_per_anchor: Captions for a pair that the data calls wrong: `data.wrong_caption_column`, or those
            that come with scenes.
        weight: How much a caption or picture that is a negative only counts against one of the batch.
        confined: Such a one is a negative of the pairs it was drawn for; false: of all in the batch (NegCLIP).
        share_start: The part of all these numbers that enters at first; it grows evenly to all of them.
        window: The part of a pair's mined negatives, by their scores, that is drawn from at a time.
        hardness_start: Where that part lies at first: 0 at the easiest, 1 at the hardest; it moves evenly to
            `hardness_end`.
        hardness_end: Where it lies in the end.
        grown_at: The part of the run's steps after which share and hardness stay as they are.
    """

    manifest: NamedPath | None = None
    texts_per_anchor: int = Field(default=2, ge=0)
    images_per_anchor: int = Field(default=0, ge=0)
    pairs_per_anchor: int = Field(default=0, ge=0)
    wrong_captions_per_anchor: int = Field(default=0, ge=0)
    weight: float = Field(default=1.0, gt=0)
    confined: bool = False
    share_start: float = Field(default=1.0, ge=0, le=1)
    window: float = Field(default=1.0, gt=0, le=1)
    hardness_start: float = Field(default=1.0, ge=0, le=1)
    hardness_end: float = Field(default=1.0, ge=0, le=1)
    grown_at: float = Field(default=0.5, ge=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _nothing_mined(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("manifest") is None:
            return {"texts_per_anchor": 0, **given}
        return given

    @model_validator(mode="after")
    def _some(self) -> Self:
        mined = [key for key in _MINED if getattr(self, key)]
        if self.manifest is None and mined:
            raise ValueError(f"{mined[0]} needs a manifest (write one with `twinlens mine`)")
        if not mined and not self.wrong_captions_per_anchor:
            raise ValueError(f"{', '.join(_MINED)} and wrong_captions_per_anchor are all 0")
        extras = [self.texts_per_anchor, self.images_per_anchor, self.wrong_captions_per_anchor]
        if (self.confined or self.weight != 1) and not any(extras):
            raise ValueError("confined and weight are for negatives that are nothing else: pairs_per_anchor draws none")
        if self.window < 1 and not mined:
            raise ValueError("window is for mined negatives: those that the data calls wrong have no scores")
        if self.window == 1 and (self.hardness_start, self.hardness_end) != (1, 1):
            raise ValueError("hardness_start and hardness_end move a window below 1: set window, for example to 0.25")
        return self
