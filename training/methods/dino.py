"""DINO: self-distillation without labels (Caron et al. 2021)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from twinlens.training.collapse.assignments import AssignmentMonitor, assignment_use
from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.losses.dino import dino_loss, teacher_distribution
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.centre import Centre
from twinlens.training.modules.dino_head import DinoHead
from twinlens.training.modules.momentum import MomentumNetwork, cosine_momentum
from twinlens.training.modules.multi_crop import check_crop_sizes, encode_crops


class DINOOptions(MethodOptions):
    """The section [method].

    Attributes:
        outputs: Dimensions of the head's output (the paper's 65,536 are for ImageNet).
        hidden: Width of the head's hidden layers.
        bottleneck: Width before its last layer.
        head_norm: Batch norm in the head; `auto`: none for a ViT, so that all is free of it, else batch norm.
        train_last_gain: Let the lengths of the last layer's rows be learned (`norm_last_layer=False`).
        momentum: Of the teacher at the first step; rises to 1 by a cosine.
        student_temperature: τ_s.
        teacher_temperature: τ_t after its warm-up.
        warmup_teacher_temperature: τ_t at the first step.
        warmup_teacher_temperature_epochs: Walks through the data over which τ_t changes, linearly.
        centre: Subtract the running mean of the teacher's outputs; without it one dimension takes all.
        centre_momentum: Of that mean.
        freeze_last_layer_epochs: Walks through the data before the last layer moves.
        clip_gradient: Largest norm of each parameter's gradient; None: as they are.
        weight_decay_end: Weight decay rises from the run's to this by a cosine; None: it stays.
    """

    outputs: int = Field(default=65536, ge=2)
    hidden: int = Field(default=2048, ge=1)
    bottleneck: int = Field(default=256, ge=2)
    head_norm: Literal["auto", "batch", "none"] = "auto"
    train_last_gain: bool = False
    momentum: float = Field(default=0.996, ge=0, le=1)
    student_temperature: float = Field(default=0.1, gt=0)
    teacher_temperature: float = Field(default=0.07, gt=0)
    warmup_teacher_temperature: float = Field(default=0.04, gt=0)
    warmup_teacher_temperature_epochs: float = Field(default=30.0, ge=0)
    centre: bool = True
    centre_momentum: float = Field(default=0.9, ge=0, lt=1)
    freeze_last_layer_epochs: float = Field(default=1.0, ge=0)
    clip_gradient: float | None = Field(default=3.0, gt=0)
    weight_decay_end: float | None = Field(default=None, ge=0)


class DINO(ImageMethod):
    """A student sees all crops, its moving average, the teacher, the full ones; the teacher is what is exported."""

    name = "dino"
    Options = DINOOptions
    takes_local_views: ClassVar[bool] = True
    encodes_in_chunks: ClassVar[bool] = True

    def __init__(self, backbone: Backbone, options: DINOOptions, plan: RunPlan) -> None:
        """Adds the head, the teacher and the centre."""
        super().__init__(backbone, options, plan)
        norm = options.head_norm
        if norm == "auto":
            norm = "none" if backbone.is_vit else "batch"
        self.head = DinoHead(
            backbone.dim,
            options.outputs,
            hidden=options.hidden,
            bottleneck=options.bottleneck,
            norm=norm,
            train_gain=options.train_last_gain,
        )
        self.teacher = MomentumNetwork(backbone)
        self.teacher_head = MomentumNetwork(self.head)
        _keep_all_paths(self.teacher)
        self.centre = Centre(options.outputs, momentum=options.centre_momentum)
        self._assignments = AssignmentMonitor(self.collapse_causes())

    @classmethod
    def check(cls, options: DINOOptions, plan: RunPlan, backbone: Backbone) -> None:  # noqa: ARG003
        """Refuses small crops of a size that the encoder does not take.

        Raises:
            ConfigError: naming the size and what would do.
        """
        check_crop_sizes(backbone, plan.local_sizes)

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:  # noqa: ARG002 - needs no more than views
        """One step's loss; the paper's two signs of collapse (section 5.3), and `assignment_information` for both.

        `teacher_entropy`, as a share of log k: 1 is the uniform distribution, 0 a single dimension;
        `teacher_student_divergence`: 0 where the teacher gives the same for all pictures.
        """
        full = views[: self.plan.global_views]
        teacher_head = cast("DinoHead", self.teacher_head.network)
        with torch.no_grad():
            seen_by_teacher = teacher_head.embed(torch.cat(encode_crops(self.teacher, full)))
        embeddings = self.head.embed(torch.cat(encode_crops(self.encode, views)))
        # Not in bfloat16: a cosine would be wrong by up to 0.004, which the temperatures make a tenth of a logit.
        with torch.autocast(embeddings.device.type, enabled=False):
            targets = teacher_head.scores(seen_by_teacher.float())
            embeddings = embeddings.float()
            scores = self.head.scores(embeddings).chunk(len(views))
            temperature = self.teacher_temperature()
            loss = dino_loss(
                scores,
                targets.chunk(len(full)),
                self.centre.value,
                student_temperature=self.options.student_temperature,
                teacher_temperature=temperature,
            )
            distributions = teacher_distribution(targets, self.centre.value, temperature=temperature)
        use = assignment_use(distributions)
        if self._is_watched():
            self._assignments.see(self.global_step + 1, use)
        if self.options.centre:
            self.centre.update(targets)
        values = {
            "assignment_information": use.information,
            "teacher_entropy": use.entropy / math.log(self.options.outputs),
            "teacher_student_divergence": loss.detach() - use.entropy,
        }
        return StepOutput(loss, values, embeddings.chunk(len(views))[: len(full)])

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Clips each parameter's gradient, lets the last layer rest at first, and sets the weight decay."""
        options = self.options
        if options.clip_gradient is not None:
            for parameter in self.parameters():
                if parameter.grad is not None:
                    torch.nn.utils.clip_grad_norm_(parameter, options.clip_gradient)
        if self.epoch < options.freeze_last_layer_epochs:
            self.head.last.grad = self.head.gain.grad = None
        if options.weight_decay_end is not None:
            decay = cosine_momentum(self.plan.weight_decay, self.progress, end=options.weight_decay_end)
            for group in optimizer.param_groups:
                if group["params"] and group["params"][0].ndim >= 2:
                    group["weight_decay"] = decay

    def after_step(self) -> None:
        """The teacher follows."""
        momentum = cosine_momentum(self.options.momentum, self.progress)
        self.teacher.follow(self.backbone, momentum)
        self.teacher_head.follow(self.head, momentum)

    def teacher_temperature(self) -> float:
        """τ_t of this step."""
        options = self.options
        done = 1.0
        if options.warmup_teacher_temperature_epochs > 0:
            done = min(1.0, self.epoch / options.warmup_teacher_temperature_epochs)
        start, end = options.warmup_teacher_temperature, options.teacher_temperature
        return float(start + done * (end - start))

    def exported(self) -> Backbone:
        """The teacher, which is better than its student all along (paper, section 5.2)."""
        return cast("Backbone", self.teacher.network)

    def collapse_causes(self) -> str:
        """What breaks the balance of centring and sharpening."""
        if not self.options.centre:
            return "nothing keeps one output from taking all pictures: set method.centre to true"
        return (
            "method.teacher_temperature may be too high (no sharpening) or method.centre_momentum wrong; "
            "0.04 is safe, and a lower learning rate helps"
        )


def _keep_all_paths(network: torch.nn.Module) -> None:
    """Stochastic depth is the student's only."""
    from timm.layers.drop import DropPath  # noqa: PLC0415 - seconds

    for module in network.modules():
        if isinstance(module, DropPath):
            module.drop_prob = 0.0
