"""SimSiam: two views through one encoder, a predictor on one side, stop-gradient on the other (Chen & He 2021)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.losses.negative_cosine import negative_cosine
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.projection_head import mlp_head
from twinlens.training.optimiser import scheduled


class SimSiamOptions(MethodOptions):
    """The section [method].

    Attributes:
        hidden: Width of the projection head's hidden layers.
        dim: Length of the projections.
        layers: Of the projection head; 3 on ImageNet, 2 on CIFAR-10 (appendix D of the paper).
        predictor_hidden: Width of the prediction head's hidden layer: a bottleneck, a quarter of `dim`.
        predictor: `none` leaves the prediction head out (table 1 of the paper: the encoder does not learn).
        predictor_decays: Whether the prediction head's learning rate falls with the others'; the paper keeps it
            (table 1, "lr not decayed").
        stop_gradient: False: gradients flow into both branches (figure 2 of the paper: the encoder collapses).
    """

    hidden: int = Field(default=2048, ge=1)
    dim: int = Field(default=2048, ge=2)
    layers: int = Field(default=3, ge=1, le=64)
    predictor_hidden: int = Field(default=512, ge=1)
    predictor: Literal["mlp", "none"] = "mlp"
    predictor_decays: bool = False
    stop_gradient: bool = True


class SimSiam(ImageMethod):
    """Neither negatives nor a momentum encoder: BYOL with an encoder that is its own target."""

    name = "simsiam"
    Options = SimSiamOptions
    encodes_in_chunks: ClassVar[bool] = True

    def __init__(self, backbone: Backbone, options: SimSiamOptions, plan: RunPlan) -> None:
        """Adds the two heads."""
        super().__init__(backbone, options, plan)
        hidden = [options.hidden] * (options.layers - 1)
        self.projection_head = mlp_head([backbone.dim, *hidden, options.dim], last_norm="affine-free")
        self.prediction_head = (
            mlp_head([options.dim, options.predictor_hidden, options.dim])
            if options.predictor == "mlp"
            else nn.Identity()
        )

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:  # noqa: ARG002 - needs no more than views
        """The symmetrised loss (Chen & He 2021, eq. 4)."""
        # View by view: batch norm takes the statistics of one view, as in the authors' code.
        z_1, z_2 = (self.projection_head(self.encode(view)) for view in views)
        t_1, t_2 = (z_1.detach(), z_2.detach()) if self.options.stop_gradient else (z_1, z_2)
        p_1, p_2 = self.prediction_head(z_1), self.prediction_head(z_2)
        loss = 0.5 * negative_cosine(p_1, t_2) + 0.5 * negative_cosine(p_2, t_1)
        return StepOutput(loss, {}, (z_1, z_2))

    def configure_optimizers(self) -> Any:
        """The plan's optimiser; the prediction head keeps its learning rate to the end."""
        if self.options.predictor_decays:
            return super().configure_optimizers()
        optimiser = self._optimiser([self.backbone, self.projection_head])
        factors: list[Callable[[int], float]] = [self._schedule().factor] * len(optimiser.param_groups)
        for group in self._optimiser([self.prediction_head]).param_groups:
            optimiser.add_param_group(group)
            factors.append(_constant)
        return scheduled(optimiser, factors)

    def collapse_causes(self) -> str:
        """What the paper finds to be essential, and what else."""
        if not self.options.stop_gradient:
            return "without stop-gradient a constant is the best answer: set method.stop_gradient to true"
        if self.options.predictor == "none":
            return "without a predictor the loss is that without stop-gradient: set method.predictor to mlp"
        return "the learning rate may be too high, weight decay too strong, or the batch too small for batch norm"


def _constant(step: int) -> float:  # noqa: ARG001 - a schedule's signature
    return 1.0
