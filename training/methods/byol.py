"""BYOL: predict what a slowly moving copy of oneself makes of another view (Grill et al. 2020)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.losses.byol import byol_regression
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.momentum import MomentumNetwork, cosine_momentum
from twinlens.training.modules.projection_head import mlp_head


class BYOLOptions(MethodOptions):
    """The section [method].

    Attributes:
        hidden: Width of the hidden layers of projection and prediction head.
        dim: Length of the projections.
        momentum: Of the target network at the first step; it rises to 1.
        predictor: `none` leaves the prediction head out (table 5b of the paper: the encoder collapses).
        stop_gradient: False: the targets are the online network's own projections, with gradients (the encoder
            collapses).
    """

    hidden: int = Field(default=4096, ge=1)
    dim: int = Field(default=256, ge=2)
    momentum: float = Field(default=0.996, ge=0, le=1)
    predictor: Literal["mlp", "none"] = "mlp"
    stop_gradient: bool = True


class BYOL(ImageMethod):
    """No negatives: what keeps the embeddings apart is that only one branch has a predictor and gradients."""

    name = "byol"
    Options = BYOLOptions
    encodes_in_chunks: ClassVar[bool] = True

    def __init__(self, backbone: Backbone, options: BYOLOptions, plan: RunPlan) -> None:
        """Adds the two heads, and the target network as a copy of backbone and projection head."""
        super().__init__(backbone, options, plan)
        self.projection_head = mlp_head([backbone.dim, options.hidden, options.dim], bias=True, last_bias=False)
        self.prediction_head = (
            mlp_head([options.dim, options.hidden, options.dim], bias=True, last_bias=False)
            if options.predictor == "mlp"
            else nn.Identity()
        )
        self.target_backbone = MomentumNetwork(self.backbone)
        self.target_head = MomentumNetwork(self.projection_head)

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:  # noqa: ARG002 - needs no more than views
        """The loss in both directions (Grill et al. 2020, §3.1)."""
        # View by view: batch norm takes the statistics of one view, as in the authors' code.
        z_1, z_2 = (self.projection_head(self.encode(view)) for view in views)
        if self.options.stop_gradient:
            with torch.no_grad():
                t_1, t_2 = (self.target_head(self.encode(view, self.target_backbone)) for view in views)
        else:
            t_1, t_2 = z_1, z_2
        loss = byol_regression(self.prediction_head(z_1), t_2) + byol_regression(self.prediction_head(z_2), t_1)
        return StepOutput(loss, {"momentum": torch.tensor(self._momentum())}, (z_1, z_2))

    def after_step(self) -> None:
        """The target network follows (Grill et al. 2020, eq. 1)."""
        momentum = self._momentum()
        self.target_backbone.follow(self.backbone, momentum)
        self.target_head.follow(self.projection_head, momentum)

    def collapse_causes(self) -> str:
        """What takes away the balance between the two branches."""
        if not self.options.stop_gradient:
            return "without stop-gradient a constant is the best answer: set method.stop_gradient to true"
        if self.options.predictor == "none":
            return "without a predictor both branches meet in a constant: set method.predictor to mlp"
        return "method.momentum may be too low, the learning rate too high, or the batch too small for batch norm"

    def _momentum(self) -> float:
        return cosine_momentum(self.options.momentum, self.progress)
