"""Barlow Twins: redundancy reduction (Zbontar et al. 2021)."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.losses.barlow_twins import barlow_twins
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.projection_head import mlp_head


class BarlowTwinsOptions(MethodOptions):
    """The section [method].

    Attributes:
        dim: Width of the projector's three layers, and so of the embeddings; wider is better in the paper.
        redundancy_weight: λ, of the terms off the diagonal.
        loss_scale: Factor on the loss, as the authors' code has one; makes no difference to AdamW.
    """

    dim: int = Field(default=8192, ge=2)
    redundancy_weight: float = Field(default=0.0051, ge=0)
    loss_scale: float = Field(default=1.0, gt=0)


class BarlowTwins(ImageMethod):
    """Both views through one network; their cross-correlation should be the identity."""

    name = "barlow_twins"
    Options = BarlowTwinsOptions
    encodes_in_chunks: ClassVar[bool] = True

    def __init__(self, backbone: Backbone, options: BarlowTwinsOptions, plan: RunPlan) -> None:
        """Adds the projector."""
        super().__init__(backbone, options, plan)
        self.head = mlp_head([backbone.dim, options.dim, options.dim, options.dim], last_bias=False)

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:  # noqa: ARG002 - needs no more than views
        """One step's loss and its two terms."""
        first, second = (self.head(self.encode(view)) for view in views)
        # Not in bfloat16: thousands of squares are added up.
        with torch.autocast(first.device.type, enabled=False):
            terms = barlow_twins(first, second, redundancy_weight=self.options.redundancy_weight)
            loss = self.options.loss_scale * terms.loss
        values = {"invariance": terms.invariance.detach(), "redundancy": terms.redundancy.detach()}
        return StepOutput(loss, values, (first, second))

    def collapse_causes(self) -> str:
        """Its loss has no collapsed minimum, so that it is the optimisation."""
        return (
            "the learning rate may be too high, or the batch too small to estimate correlations; with "
            "method.redundancy_weight near 0 all dimensions may become one"
        )
