"""`[tuning]`: which parts of a dual encoder are trained, and how fast."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StrictBool, StrictInt, model_validator

from twinlens.training.sections.frozen import Frozen

Lock = StrictBool | Annotated[StrictInt, Field(ge=0)]


class TuningConfig(Frozen):
    """Which parts of a dual encoder are trained, and how fast; by default all of it alike.

    A tower is a stem (embeddings, first convolutions), blocks, and a head (what stands behind the last block: norms,
    pooling, projection). Locked parts keep their weights and their batch-norm statistics, and nothing random happens in
    them (LiT, Zhai et al. 2022).

    Attributes:
        lock_image: true locks the whole image tower; a number locks all but the head and so many last blocks.
        lock_text: The same for the text tower.
        unlock_steps: Every so many steps the next lower block of each locked tower opens, the head first (gradual
            unfreezing, Howard & Ruder 2018); 0: what is locked stays locked.
        layer_decay: The learning rate of a part is this times that of the part above it; 1: all alike.
        image_rate: Factor on the learning rate of the image tower.
        text_rate: Factor on the learning rate of the text tower.
        patch_dropout: Share of the patches that a Vision Transformer does not see in training: faster, and steps of
            larger batches fit (FLIP, Li et al. 2023).
        image_residual: Add a projection of the image tower's features to its embeddings, zero at first and always
            trained, so that the vectors start as they were; for towers that are joined through class names, as the
            starter's.
    """

    lock_image: Lock = False
    lock_text: Lock = False
    unlock_steps: int = Field(default=0, ge=0)
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    image_rate: float = Field(default=1.0, gt=0)
    text_rate: float = Field(default=1.0, gt=0)
    patch_dropout: float = Field(default=0.0, ge=0, lt=1)
    image_residual: bool = False

    @model_validator(mode="after")
    def _something_is_trained(self) -> Self:
        if self.unlock_steps and self.lock_image is False and self.lock_text is False:
            raise ValueError("unlock_steps opens what lock_image or lock_text locks; set one of them")
        if self.lock_image is True and self.lock_text is True and not (self.unlock_steps or self.image_residual):
            raise ValueError("lock_image and lock_text lock everything: nothing would be trained")
        if self.patch_dropout and self.lock_image is True and not self.unlock_steps:
            raise ValueError("patch_dropout does nothing in a tower that lock_image locks")
        return self
