"""SwAV: predict from one crop which prototypes another crop is assigned to (Caron et al. 2020)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from twinlens.training.collapse.assignments import AssignmentMonitor, assignment_use
from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError
from twinlens.training.losses.sinkhorn import sinkhorn
from twinlens.training.losses.swapped_prediction import swapped_prediction
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.gather import own_rows, world_size
from twinlens.training.modules.memory_queue import MemoryQueue, check_queue_size
from twinlens.training.modules.multi_crop import check_crop_sizes, encode_crops
from twinlens.training.modules.projection_head import mlp_head
from twinlens.training.modules.prototypes import Prototypes


class SwAVOptions(MethodOptions):
    """The section [method].

    Attributes:
        hidden: Width of the projection head's hidden layer.
        dim: Length of the embeddings that are compared with the prototypes.
        prototypes: How many; a few times the number of clusters in the data.
        temperature: τ of the predictions.
        epsilon: ε of the assignment: smaller is harder.
        iterations: Of Sinkhorn-Knopp.
        freeze_prototypes_epochs: Walks through the data before the prototypes move.
        queue_size: Embeddings of earlier batches that are assigned together with the batch, so that a small batch can
            be spread over many prototypes; a multiple of the batch; 0: none.
        queue_start_epoch: When the queue begins to fill; it is used once it is full.
        assignment: `sinkhorn`, or `softmax` of the scores, without equal use of the prototypes: the published failure.
    """

    hidden: int = Field(default=2048, ge=1)
    dim: int = Field(default=128, ge=2)
    prototypes: int = Field(default=3000, ge=2)
    temperature: float = Field(default=0.1, gt=0)
    epsilon: float = Field(default=0.05, gt=0)
    iterations: int = Field(default=3, ge=1, le=1000)
    freeze_prototypes_epochs: float = Field(default=1.0, ge=0)
    queue_size: int = Field(default=0, ge=0)
    queue_start_epoch: float = Field(default=15.0, ge=0)
    assignment: Literal["sinkhorn", "softmax"] = "sinkhorn"


class SwAV(ImageMethod):
    """Codes by Sinkhorn-Knopp from the full crops, predicted from all other crops."""

    name = "swav"
    Options = SwAVOptions
    takes_local_views: ClassVar[bool] = True
    encodes_in_chunks: ClassVar[bool] = True

    def __init__(self, backbone: Backbone, options: SwAVOptions, plan: RunPlan) -> None:
        """Adds the projection head, the prototypes and, where asked for, one queue for each full crop."""
        super().__init__(backbone, options, plan)
        self.head = mlp_head([backbone.dim, options.hidden, options.dim], bias=True)
        self.prototypes = Prototypes(options.dim, options.prototypes)
        self.queues = nn.ModuleList(
            MemoryQueue(options.queue_size, options.dim) for _ in range(plan.global_views) if options.queue_size
        )

        self._assignments = AssignmentMonitor(self.collapse_causes())

    @classmethod
    def check(cls, options: SwAVOptions, plan: RunPlan, backbone: Backbone) -> None:
        """Refuses fewer prototypes than classes, a queue that does not fit the batch, and crops of a wrong size.

        Raises:
            ConfigError: naming the key and what would do.
        """
        if options.prototypes < plan.classes:
            raise ConfigError(
                f"method.prototypes: {options.prototypes} prototypes cannot tell the {plan.classes} classes of the "
                f"data apart; take about {3 * plan.classes}"
            )
        if options.queue_size:
            try:
                check_queue_size(options.queue_size, plan.batch_size)
            except ValueError as error:
                raise ConfigError(f"method.queue_size: {error}") from None
        check_crop_sizes(backbone, plan.local_sizes)

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:  # noqa: ARG002 - needs no more than views
        """One step's loss; `assignment_information`, and the share of the prototypes that is in use."""
        options = self.options
        self.prototypes.normalise()
        features = encode_crops(self.encode, views)
        projected = self.head(torch.cat(features))
        # Not in bfloat16: a cosine would be wrong by up to 0.004, which ε makes 8 % of a code.
        with torch.autocast(projected.device.type, enabled=False):
            embeddings = F.normalize(projected.float(), dim=1).chunk(len(views))
            scores = [self.prototypes(each) for each in embeddings]
            full = embeddings[: self.plan.global_views]
            codes = [self._codes(scores[view].detach(), view) for view in range(len(full))]
            loss = swapped_prediction(scores, codes, temperature=options.temperature)
        self._remember(full)
        use = assignment_use(torch.cat(codes))
        if self._is_watched():
            self._assignments.see(self.global_step + 1, use)
        values = {"assignment_information": use.information, "prototypes_used": use.used / options.prototypes}
        return StepOutput(loss, values, full)

    def on_before_optimizer_step(self, optimizer: Any) -> None:  # noqa: ARG002 - Lightning's signature
        """Without gradients the prototypes rest, weight decay and momentum included."""
        if self.epoch < self.options.freeze_prototypes_epochs:
            self.prototypes.weight.grad = None

    def collapse_causes(self) -> str:
        """What lets all pictures fall on one prototype."""
        if self.options.assignment == "softmax":
            return "a softmax may assign all pictures to one prototype: set method.assignment to sinkhorn"
        return "method.epsilon may be too large (codes all alike), the learning rate too high, or the batch too small"

    @torch.no_grad()
    def _codes(self, scores: Tensor, view: int) -> Tensor:
        options = self.options
        if options.assignment == "softmax":
            return torch.softmax(scores / options.epsilon, dim=1)
        together = scores
        queue = self._queue_of(view)
        if queue is not None and queue.is_full:
            # Every rank holds the whole queue, and the assignment adds up over ranks: each gives its part.
            earlier = queue.keys_kd[own_rows(len(queue) // world_size())]
            together = torch.cat([scores, self.prototypes(earlier)])
        return sinkhorn(together, epsilon=options.epsilon, iterations=options.iterations)[: len(scores)]

    def _remember(self, full: tuple[Tensor, ...]) -> None:
        if self.epoch >= self.options.queue_start_epoch:
            for view, embeddings in enumerate(full):
                queue = self._queue_of(view)
                if queue is not None:
                    queue.push(embeddings)

    def _queue_of(self, view: int) -> MemoryQueue | None:
        return cast("MemoryQueue", self.queues[view]) if self.queues else None
