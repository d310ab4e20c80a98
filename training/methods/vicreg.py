"""VICReg: variance, invariance and covariance (Bardes et al. 2022)."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from twinlens.training.collapse.monitor import Watched
from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import TrainingError
from twinlens.training.losses.vicreg import vicreg
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.projection_head import mlp_head

# A fresh expander gives a standard deviation of about 0.3, whatever its width, and a healthy run brings it to 1.
_SHRUNK = 0.1
# Steps.
_PATIENCE = 30


class VICRegOptions(MethodOptions):
    """The section [method].

    Attributes:
        dim: Width of the expander's three layers, and so of the embeddings.
        invariance_weight: λ.
        variance_weight: μ; 0 is the published failure: all embeddings become one.
        covariance_weight: ν.
    """

    dim: int = Field(default=8192, ge=2)
    invariance_weight: float = Field(default=25.0, ge=0)
    variance_weight: float = Field(default=25.0, ge=0)
    covariance_weight: float = Field(default=1.0, ge=0)


class VICReg(ImageMethod):
    """Both views through one network; nothing is normalised, and each branch is kept alive by its own terms."""

    name = "vicreg"
    Options = VICRegOptions
    encodes_in_chunks: ClassVar[bool] = True

    def __init__(self, backbone: Backbone, options: VICRegOptions, plan: RunPlan) -> None:
        """Adds the expander."""
        super().__init__(backbone, options, plan)
        self.head = mlp_head([backbone.dim, options.dim, options.dim, options.dim], bias=True, last_bias=False)
        # Part of the state, so that a resumed run is watched as it was.
        self._size = Watched(floor=_SHRUNK, least=0.0, chance=_SHRUNK)

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:  # noqa: ARG002 - needs no more than views
        """One step's loss and its three terms."""
        options = self.options
        first, second = (self.head(self.encode(view)) for view in views)
        # Not in bfloat16: thousands of squares are added up.
        with torch.autocast(first.device.type, enabled=False):
            terms = vicreg(
                first,
                second,
                invariance_weight=options.invariance_weight,
                variance_weight=options.variance_weight,
                covariance_weight=options.covariance_weight,
            )
        if self._is_watched():
            self._watch_size(1.0 - float(terms.variance.detach()))
        values = {
            "invariance": terms.invariance.detach(),
            "variance": terms.variance.detach(),
            "covariance": terms.covariance.detach(),
        }
        return StepOutput(terms.loss, values, (first, second))

    def _watch_size(self, std: float) -> None:
        """Without the variance term embeddings shrink, which the monitor, looking at unit vectors, does not see."""
        step = self.global_step + 1
        if self._size.has_collapsed(step, std, _PATIENCE):
            raise TrainingError(
                f"the embeddings have collapsed at step {step}: they have shrunk to a standard deviation of {std:.2g}, "
                f"and should have 1; {self.collapse_causes()}"
            )

    def collapse_causes(self) -> str:
        """What the weights of the terms do."""
        if self.options.variance_weight == 0:
            return "nothing keeps the embeddings apart: set method.variance_weight (25 in the paper)"
        return "method.variance_weight may be too small beside method.invariance_weight, or the learning rate too high"
