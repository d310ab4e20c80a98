"""`[hard_negatives]`: mined negatives in the batch."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from twinlens.training.sections.frozen import Frozen, NamedPath


class HardNegativesConfig(Frozen):
    """Mined negatives (`twinlens mine`) that enter each batch; see `HardShare`.

    Attributes:
        manifest: What `twinlens mine` wrote.
        texts_per_anchor: Wrong captions for a pair.
        images_per_anchor: Wrong pictures for a pair.
        pairs_per_anchor: Whole pairs that take the place of random ones in the batch.
        weight: How much a caption or picture that is a negative only counts against one of the batch.
    """

    manifest: NamedPath
    texts_per_anchor: int = Field(default=2, ge=0)
    images_per_anchor: int = Field(default=0, ge=0)
    pairs_per_anchor: int = Field(default=0, ge=0)
    weight: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.texts_per_anchor + self.images_per_anchor + self.pairs_per_anchor == 0:
            raise ValueError("texts_per_anchor, images_per_anchor and pairs_per_anchor are all 0")
        return self
