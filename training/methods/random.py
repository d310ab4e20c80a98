"""No training at all: the lower end of the scale."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone


class Random(ImageMethod):
    """Keeps the weights that the seed gave the encoder; a run of no steps."""

    name: ClassVar[str] = "random"
    wanted_global_views: ClassVar[int | None] = None
    takes_local_views: ClassVar[bool] = True
    can_collapse: ClassVar[bool] = False

    @classmethod
    def check(cls, options: MethodOptions, plan: RunPlan, backbone: Backbone) -> None:  # noqa: ARG003 - the base's
        """Refuses to be trained."""
        if plan.steps:
            raise ConfigError(f"train.steps: random takes no step, but {plan.steps} are asked for; leave it at 0")

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:
        """There is none.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("random is never trained")
