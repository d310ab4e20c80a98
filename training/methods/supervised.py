"""Supervised classification: the upper end of the scale for methods without labels."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.data.picture_set import WHERE_CLASSES_STAND
from twinlens.training.errors import ConfigError
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone


class SupervisedOptions(MethodOptions):
    """How sure the classifier may become.

    Attributes:
        label_smoothing: ε of Szegedy et al. 2016: mixes the true class with all classes alike.
    """

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class Supervised(ImageMethod):
    """Cross-entropy of a linear classifier on the pooled embedding; only the encoder is exported."""

    name: ClassVar[str] = "supervised"
    Options: ClassVar[type[MethodOptions]] = SupervisedOptions
    needs_labels: ClassVar[bool] = True
    wanted_global_views: ClassVar[int | None] = 1
    options: SupervisedOptions

    def __init__(self, backbone: Backbone, options: SupervisedOptions, plan: RunPlan) -> None:
        """Adds the classifier."""
        super().__init__(backbone, options, plan)
        self.classifier = nn.Linear(backbone.dim, plan.classes)

    @classmethod
    def check(cls, options: SupervisedOptions, plan: RunPlan, backbone: Backbone) -> None:  # noqa: ARG003 - the base's
        """Refuses pictures that are all of one class, or of none."""
        if plan.classes < 2:
            raise ConfigError(
                f"data.path: supervised needs at least two classes, found {plan.classes}: {WHERE_CLASSES_STAND}"
            )

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:
        """Classifies."""
        embedding = self.backbone(views[0])
        logits = self.classifier(embedding)
        with torch.autocast(logits.device.type, enabled=False):
            loss = F.cross_entropy(logits.float(), batch.labels, label_smoothing=self.options.label_smoothing)
            right = (logits.detach().argmax(dim=1) == batch.labels).float().mean()
        return StepOutput(loss, {"accuracy": right}, (embedding.detach(),))

    def collapse_causes(self) -> str:
        """What makes all classes look alike."""
        return "the classifier tells no classes apart: learning_rate is too high or the labels are noise"
