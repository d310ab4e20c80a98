"""MoCo: tell a picture's key, made by a slowly moving encoder, from those of other pictures (v2 and v3)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError
from twinlens.training.losses.batch_info_nce import batch_info_nce
from twinlens.training.losses.queue_info_nce import queue_info_nce
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.gather import gather_with_gradients, own_rows
from twinlens.training.modules.memory_queue import MemoryQueue, check_queue_size
from twinlens.training.modules.momentum import MomentumNetwork, cosine_momentum
from twinlens.training.modules.projection_head import mlp_head
from twinlens.training.modules.shuffled_batch import computed_shuffled
from twinlens.training.modules.split_batch_norm import has_batch_norm, split_batch_norms


class MoCoOptions(MethodOptions):
    """The section [method].

    What may be None is then as in the paper of the chosen version: 2 (Chen et al. 2020) or 3 (Chen, Xie & He 2021).

    Attributes:
        version: 2: negatives are the keys in a queue; 3: those of the batch, symmetric, with a prediction head.
        temperature: τ of the loss; None: 0.2, but 1 in version 3 without a ViT.
        momentum: Of the key encoder, rising to 1 by a cosine in version 3; None: 0.999, or 0.99 in version 3.
        hidden: Width of the heads' hidden layers; None: that of the encoder, or 4096 in version 3.
        dim: Length of the embeddings that are compared; None: 128, or 256 in version 3.
        queue_size: K, a multiple of the batch and larger; None: the paper's 65536, but no more than half the pictures,
            for a picture whose own older key is in the queue is its own negative (version 2).
        symmetric: Let both views be queries, at twice the work; the paper's MoCo v2 takes one (version 2).
        batch_norm_parts: Batch norm takes its statistics from so many parts of the batch, of all ranks and chunks
            together: the number of devices in the paper's runs; 1: from all of it; None: 8, or the next that fits
            (version 2).
        shuffle_keys: Deal the keys out between the parts anew, so that their statistics do not tell which keys belong
            to the batch (version 2).
        freeze_patch_embedding: Leave a ViT's first layer at its random start, which keeps training stable (version 3).
    """

    version: Literal[2, 3] = 2
    temperature: float | None = Field(default=None, gt=0)
    momentum: float | None = Field(default=None, ge=0, le=1)
    hidden: int | None = Field(default=None, ge=1)
    dim: int | None = Field(default=None, ge=2)
    queue_size: int | None = Field(default=None, ge=1)
    symmetric: bool = False
    batch_norm_parts: int | None = Field(default=None, ge=1)
    shuffle_keys: bool = True
    freeze_patch_embedding: bool = True


class MoCo(ImageMethod):
    """Queries come from the trained encoder, keys from its moving average.

    Attributes:
        temperature: τ, resolved by version and backbone.
        first_momentum: Of the key encoder at the first step, likewise.
    """

    name = "moco"
    Options = MoCoOptions
    encodes_in_chunks: ClassVar[bool] = True

    def __init__(self, backbone: Backbone, options: MoCoOptions, plan: RunPlan) -> None:
        """Adds heads, the key encoder as a copy of backbone and projection head, and the queue of version 2."""
        super().__init__(backbone, options, plan)
        vit, three = backbone.is_vit, options.version == 3
        hidden = options.hidden or (4096 if three else backbone.dim)
        dim = options.dim or (256 if three else 128)
        self.temperature = options.temperature or (0.2 if vit or not three else 1.0)
        self.first_momentum = (0.99 if three else 0.999) if options.momentum is None else options.momentum
        self.prediction_head: nn.Module = nn.Identity()
        self.queue: MemoryQueue | None = None
        self._fresh_keys: Tensor | None = None
        # Only where the keys of a batch do not share all their statistics anyway, or none.
        self._shuffles_keys = False
        if three:
            layers = [hidden] * (2 if vit else 1)
            self.projection_head = mlp_head([backbone.dim, *layers, dim], last_norm="affine-free")
            self.prediction_head = mlp_head(
                [dim, hidden, dim], last_norm="affine-free" if vit else False, last_bias=False
            )
            if vit and options.freeze_patch_embedding:
                backbone.trunk.patch_embed.requires_grad_(False)
        else:
            self.projection_head = mlp_head([backbone.dim, hidden, dim], norm="none")
            self.queue = MemoryQueue(_queue_size(options, plan), dim)
            # One part of the whole batch is what all ranks share anyway.
            parts = _parts(options, plan)
            if parts > 1 and has_batch_norm(backbone):
                split_batch_norms(backbone, _encoded_together(plan) * parts // plan.batch_size)
                self._shuffles_keys = options.shuffle_keys
        self.key_backbone = MomentumNetwork(backbone)
        self.key_head = MomentumNetwork(self.projection_head)

    @classmethod
    def check(cls, options: MoCoOptions, plan: RunPlan, backbone: Backbone) -> None:
        """Refuses a queue and parts of batch norm that do not suit the batch.

        Raises:
            ConfigError: naming the key and what would do.
        """
        if options.version == 3:
            return
        try:
            check_queue_size(_queue_size(options, plan), _keys_per_step(options, plan))
        except ValueError as error:
            raise ConfigError(f"method.queue_size: {error}") from None
        parts = _parts(options, plan)
        if has_batch_norm(backbone) and not _can_be_cut(plan, parts):
            shared = f" and {plan.world_size} processes" if plan.world_size > 1 else ""
            chunks = f" in chunks of {plan.chunk_size}" if plan.chunk_size is not None else ""
            raise ConfigError(
                f"method.batch_norm_parts: a batch of {plan.batch_size}{chunks}{shared} cannot be cut into {parts} "
                f"equal parts of two pictures or more{', each within a chunk' if chunks else ''}; take a batch that is "
                f"a multiple of {2 * parts}, or other parts"
            )

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:  # noqa: ARG002 - needs no more than views
        """One step's loss, by version."""
        loss, embeddings = self._in_batch(views) if self.queue is None else self._against(self.queue, views)
        return StepOutput(loss, {"momentum": torch.tensor(self._momentum())}, embeddings)

    def after_step(self) -> None:
        """The key encoder follows; the keys of the step become negatives (He et al. 2020, algorithm 1)."""
        momentum = self._momentum()
        self.key_backbone.follow(self.backbone, momentum)
        self.key_head.follow(self.projection_head, momentum)
        if self.queue is not None and self._fresh_keys is not None:
            self.queue.push(self._fresh_keys)
            self._fresh_keys = None

    def collapse_causes(self) -> str:
        """What lets the loss fall without looking at pictures, or not at all."""
        together = self.options.batch_norm_parts == 1 or not self.options.shuffle_keys
        if self.options.version == 2 and together and has_batch_norm(self.backbone):
            return (
                "batch norm may give the answer away: set method.batch_norm_parts to 8 and method.shuffle_keys to true"
            )
        return "the learning rate may be too high, method.momentum too low or method.temperature too high"

    def _against(self, queue: MemoryQueue, views: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """MoCo v2 (Chen et al. 2020; He et al. 2020, eq. 1 and algorithm 1)."""
        directions = [(0, 1), (1, 0)] if self.options.symmetric else [(0, 1)]
        pairs = [(self._queries(views[a]), self._keys(views[b])) for a, b in directions]
        losses = [queue_info_nce(q, k, queue.keys_kd, self.temperature) for q, k in pairs]
        # They enter after the step: the backward pass still needs the queue as the loss has seen it.
        self._fresh_keys = torch.cat([k for _, k in pairs])
        return torch.stack(losses).mean(), pairs[0]

    def _in_batch(self, views: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """MoCo v3 (Chen, Xie & He 2021, algorithm 1)."""
        q_1, q_2 = (self.prediction_head(self._queries(view)) for view in views)
        k_1, k_2 = (gather_with_gradients(self._keys(view)) for view in views)
        first = own_rows(len(q_1)).start
        loss = batch_info_nce(q_1, k_2, self.temperature, first=first) + batch_info_nce(
            q_2, k_1, self.temperature, first=first
        )
        return loss, (q_1, q_2)

    def _queries(self, view: Tensor) -> Tensor:
        queries: Tensor = self.projection_head(self.encode(view))
        return queries

    @torch.no_grad()
    def _keys(self, view: Tensor) -> Tensor:
        def encode(pixels: Tensor) -> Tensor:
            keys: Tensor = self.key_head(self.encode(pixels, self.key_backbone))
            return keys

        return computed_shuffled(encode, view) if self._shuffles_keys else encode(view)

    def _momentum(self) -> float:
        if self.options.version == 3:
            return cosine_momentum(self.first_momentum, self.progress)
        return self.first_momentum


def _keys_per_step(options: MoCoOptions, plan: RunPlan) -> int:
    return plan.batch_size * (2 if options.symmetric else 1)


def _queue_size(options: MoCoOptions, plan: RunPlan) -> int:
    if options.queue_size is not None:
        return options.queue_size
    keys = _keys_per_step(options, plan)
    return max(2, min(65536, plan.dataset_size // 2) // keys) * keys


def _parts(options: MoCoOptions, plan: RunPlan) -> int:
    """How many parts of the whole batch batch norm works on."""
    if options.batch_norm_parts is not None:
        return options.batch_norm_parts
    usual = max(8, plan.world_size)
    nearest = [*range(usual, 1, -1), *range(usual + 1, plan.batch_size // 2 + 1)]
    return next((parts for parts in nearest if _can_be_cut(plan, parts)), usual)


def _encoded_together(plan: RunPlan) -> int:
    """How many pictures of one view a rank encodes at a time."""
    share = plan.batch_size // plan.world_size
    return share if plan.chunk_size is None else min(share, plan.chunk_size)


def _can_be_cut(plan: RunPlan, parts: int) -> bool:
    """Whether every part has equally many pictures, two at least, of one rank and one chunk."""
    if parts == 1:
        return True
    of_part, left = divmod(plan.batch_size, parts)
    if left or of_part < 2 or parts % plan.world_size:
        return False
    share, together = plan.batch_size // plan.world_size, _encoded_together(plan)
    return share % together == 0 and together % of_part == 0
