"""`[loss]`: what a dual encoder is trained by."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from twinlens.training.sections.frozen import Frozen

# Which loss a key belongs to.
_OWNERS = {"chunk_size": "sigmoid", "margin": "ranking", "tau_plus": "debiased"}


class LossConfig(Frozen):
    """The loss over the pairs of a batch.

    Attributes:
        name: info_nce is CLIP's; sigmoid SigLIP's, which gives the model a bias beside its scale and needs no
            normalisation over the batch; debiased is info_nce that expects some negatives to be right (Chuang et al.
            2020); ranking is DeViSE's hinge, a historic baseline.
        chunk_size: Of sigmoid: how many captions are compared at a time; less takes less memory.
        margin: Of ranking, in cosine.
        tau_plus: Of debiased: the share of captions that are right for a picture without being its own.
    """

    name: Literal["info_nce", "sigmoid", "debiased", "ranking"] = "info_nce"
    chunk_size: int = Field(default=4096, ge=1)
    margin: float = Field(default=0.1, gt=0, le=2)
    tau_plus: float = Field(default=0.01, ge=0, lt=1)

    @model_validator(mode="after")
    def _own_keys(self) -> Self:
        for key, owner in _OWNERS.items():
            if self.name != owner and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key} is for {owner}, not for {self.name}")
        return self
