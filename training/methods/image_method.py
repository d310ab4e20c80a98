"""What all methods on pictures alone have in common: a backbone, augmentation, an optimiser, a watch for collapse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytorch_lightning as pl
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from twinlens.training.augment.augmenter import Augmenter
from twinlens.training.cached_features import encode_in_chunks
from twinlens.training.collapse.monitor import CollapseMonitor
from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.gather import gather_with_gradients
from twinlens.training.optimiser import Schedule, optimiser_of, scheduled

# Steps between two looks for collapse where reports are rarer: a look costs a few milliseconds.
_LOOK_EVERY = 20


class MethodOptions(BaseModel):
    """Base of the section [method] of a configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class StepOutput:
    """What one step computed.

    Attributes:
        loss: The scalar to minimise.
        values: Further scalars for the log, detached; the same names at every step.
        embeddings: What the loss compares, one tensor (n, d) for each view, in the order of the batch's pictures; the
            collapse monitor watches them. One is enough where a method has no second view.
    """

    loss: Tensor
    values: dict[str, Tensor] = field(default_factory=dict)
    embeddings: tuple[Tensor, ...] = ()


class ImageMethod(pl.LightningModule):
    """A method that trains a backbone on pictures alone."""

    name: ClassVar[str]
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    # Whether every picture needs a class.
    needs_labels: ClassVar[bool] = False
    # How many full crops of a picture a step takes; None: any number.
    wanted_global_views: ClassVar[int | None] = 2
    takes_local_views: ClassVar[bool] = False
    # Whether `train.chunk_size` is heeded.
    encodes_in_chunks: ClassVar[bool] = False
    # Whether equal embeddings of all pictures are a failure.
    can_collapse: ClassVar[bool] = True

    def __init__(self, backbone: Backbone, options: Any, plan: RunPlan) -> None:
        """Takes what is trained, in place, and how.

        Args:
            backbone: The encoder; subclasses add heads and further branches to it.
            options: The method's own, of its class `Options`.
            plan: The run.
        """
        super().__init__()
        self.backbone = backbone
        self.options = options
        self.plan = plan
        # Set by the run; a method itself only sees views.
        self.augmenter: Augmenter | None = None
        self._monitor = CollapseMonitor(self.collapse_causes()) if self.can_collapse else None

    @classmethod
    def check(cls, options: Any, plan: RunPlan, backbone: Backbone) -> None:
        """Refuses what cannot be trained, before the first step and before anything is built on the backbone.

        Raises:
            ConfigError: naming the key and what would do.
        """

    @classmethod
    def advice(cls, options: Any, plan: RunPlan, backbone: Backbone) -> list[str]:  # noqa: ARG003 - for subclasses
        """Lines on what can be trained, but is likely not what was meant; said before the first step."""
        return []

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:
        """One step's loss.

        Args:
            views: Normalised float32 pixels in channels-last memory, (n, 3, s, s) each: the full crops, then the small
                ones.
            batch: What they were made from.
        """
        raise NotImplementedError

    def after_step(self) -> None:
        """Called after each step of the optimiser: the place of moving averages."""

    def exported(self) -> Backbone:
        """The branch that a checkpoint keeps."""
        return self.backbone

    def collapse_causes(self) -> str:
        """One sentence: what most likely made embeddings of this method collapse."""
        return "the learning rate may be too high, or the views share nothing that a network could use"

    def encode(self, pixels: Tensor, network: nn.Module | None = None) -> Tensor:
        """Features of pixels, in chunks where the plan says so.

        Args:
            pixels: Shape (n, 3, s, s).
            network: What encodes them, such as a moving average of the backbone; None: the backbone.
        """
        encoder = self.backbone if network is None else network
        return encode_in_chunks(encoder, pixels, self.plan.chunk_size, modules=[encoder])

    @property
    def progress(self) -> float:
        """The share of the run that is behind us, 0 to 1."""
        return min(1.0, self.global_step / max(1, self.plan.steps))

    @property
    def epoch(self) -> float:
        """Walks through the data that are behind us."""
        return self.global_step / self.plan.steps_per_epoch

    def training_step(self, batch: PictureBatch, batch_idx: int) -> dict[str, Tensor]:  # noqa: ARG002 - Lightning's
        """Augments, steps, watches; gives `loss` and every other value by name."""
        assert self.augmenter is not None  # noqa: S101 - the run sets it
        output = self.step(self.augmenter(batch.pixels_nhwc, batch.number), batch)
        values = {"loss": output.loss, **output.values}
        if self._monitor is not None and self._is_watched():
            # Of all ranks, so that they stop together.
            embeddings = tuple(gather_with_gradients(each.detach()) for each in output.embeddings)
            seen = self._monitor.see(self.global_step + 1, embeddings)
            values |= {name: torch.tensor(value) for name, value in seen.items()}
        return values

    def _is_watched(self) -> bool:
        """Whether to look for collapse: at the start, where the run reports, and in between where it seldom does."""
        step = self.global_step + 1  # the one we are in
        due = step % self.plan.log_every == 0 or step % _LOOK_EVERY == 0
        return due or step in {1, self.plan.steps}

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """A step, then what follows it."""
        super().optimizer_step(*args, **kwargs)
        self.after_step()

    def configure_optimizers(self) -> Any:
        """The plan's optimiser for whatever has gradients, with warm-up and half a cosine."""
        return scheduled(self._optimiser([self]), self._schedule().factor)

    def _optimiser(self, modules: Iterable[nn.Module]) -> torch.optim.Optimizer:
        plan = self.plan
        return optimiser_of(
            plan.optimiser,
            modules,
            learning_rate=plan.learning_rate,
            weight_decay=plan.weight_decay,
            momentum=plan.momentum,
        )

    def _schedule(self) -> Schedule:
        return Schedule(self.plan.steps, self.plan.warmup_steps)

    def transfer_batch_to_device(
        self,
        batch: PictureBatch,
        device: torch.device,
        dataloader_idx: int,  # noqa: ARG002
    ) -> PictureBatch:
        """Lightning cannot move frozen dataclasses by itself."""
        return batch.to(device)
