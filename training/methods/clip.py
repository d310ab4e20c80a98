"""CLIP: contrastive training of an image and a text tower (Radford et al. 2021), with hard negatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from twinlens.training.augment.augmenter import Augmenter
from twinlens.training.cached_features import encode_in_chunks
from twinlens.training.data.batches import Batch
from twinlens.training.losses.batch_figures import batch_figures
from twinlens.training.losses.pair_features import HardNegatives, PairFeatures
from twinlens.training.losses.pair_loss import PairLoss
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.modules.gather import gather_with_gradients
from twinlens.training.modules.momentum import MomentumNetwork, warmed_up_momentum
from twinlens.training.optimiser import Schedule, adamw, scheduled


class Clip(pl.LightningModule):
    """A loss over pairs; hard captions and pictures are further negatives of all of them (NegCLIP), or of some.

    The pairs of all ranks are compared with each other, and the gradient is that of one process with the whole batch.

    Attributes:
        towers: What is trained.
        average: Their exponential moving average, where one is kept.
        rates: Factors on the learning rate by a parameter's name in `towers.model`; set by the run.
        augmenter: Gives the pictures of a batch their views; set by the run. None: they go to the tower as they are.
    """

    def __init__(
        self,
        towers: DualEncoder,
        loss: PairLoss,
        *,
        learning_rate: float,
        weight_decay: float,
        schedule: Schedule,
        hard_weight: float = 1.0,
        chunk_size: int | None = None,
        ema_decay: float | None = None,
    ) -> None:
        """Takes the towers and how to train them.

        Args:
            towers: Trained in place.
            loss: What they are trained by.
            learning_rate: After warm-up.
            weight_decay: Of matrices only.
            schedule: Of the learning rate.
            hard_weight: How much a hard negative counts against one of the batch.
            chunk_size: The most pictures, and captions, that are encoded at a time; see `encode_in_chunks`.
            ema_decay: Of the moving average of the weights, which is then what a checkpoint keeps; None: there is none.
        """
        super().__init__()
        self.towers = towers
        # In evaluation mode: it computes nothing during the run.
        self.average = None if ema_decay is None else MomentumNetwork(towers).eval()
        self.augmenter: Augmenter | None = None
        self.rates: Mapping[str, float] = {}
        self._loss = loss
        self._learning_rate = learning_rate
        self._weight_decay = weight_decay
        self._schedule = schedule
        self._hard_weight = hard_weight
        self._chunk_size = chunk_size
        self._ema_decay = ema_decay
        self._images: Callable[[Tensor], Tensor] = towers.images
        self._texts: Callable[[Tensor], Tensor] = towers.texts

    def compile_towers(self) -> None:
        """Has torch compile both towers when they are first used: a minute, and faster steps on most GPUs."""
        self._images, self._texts = torch.compile(self.towers.images), torch.compile(self.towers.texts)

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:  # noqa: ARG002 - Lightning's signature
        """One step's losses by name; `loss` is the one to minimise, the others are for the log: see `batch_figures`."""
        # Captions first: how long they are is read from the device, which then has no pictures to finish before.
        texts = self._encoded(self._texts, batch.token_ids_nl)
        images = self._encoded(self._images, self._shown(batch))
        # Not in bfloat16: it would round a logit of 100 by up to 0.25.
        with torch.autocast(images.device.type, enabled=False):
            features = self._features(images, texts, batch)
            scale = self.towers.scale()
            loss = self._loss(features, scale, self.towers.bias())
            return {"loss": loss, **batch_figures(features, scale)}

    def _shown(self, batch: Batch) -> Tensor:
        """Pictures as the tower takes them: see `DualEncoder.images`."""
        if self.augmenter is None:
            return batch.pixels_nhwc
        (views,) = self.augmenter(batch.pixels_nhwc, batch.number)
        return views.permute(0, 2, 3, 1)

    def _encoded(self, encode: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        return encode_in_chunks(encode, inputs, self._chunk_size, modules=[self.towers])

    def _features(self, images: Tensor, texts: Tensor, batch: Batch) -> PairFeatures:
        n = batch.pairs
        all_images, all_texts = gather_with_gradients(images[:n]), gather_with_gradients(texts[:n])
        pairs = len(all_images)
        return PairFeatures(
            images[:n],
            texts[:n],
            all_images,
            all_texts,
            first=batch.first,
            equal=batch.equal_texts[:, :pairs],
            hard_texts=self._hard(texts[n:], batch.equal_texts[:, pairs:], batch.extra_text_weights),
            hard_images=self._hard(images[n:], batch.equal_images[:, pairs:], batch.extra_image_weights),
            weights_n=batch.weights,
        )

    def _hard(self, own: Tensor, equal: Tensor, weights: Tensor | None) -> HardNegatives | None:
        """The extras of all ranks; each has as many."""
        if len(own) == 0:
            return None
        counted = ~equal if weights is None else weights * ~equal
        return HardNegatives(gather_with_gradients(own), self._hard_weight * counted)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:  # noqa: ARG002
        """Lightning cannot move frozen dataclasses by itself."""
        return batch.to(device)

    def configure_optimizers(self) -> Any:
        """AdamW, one schedule step a batch."""
        optimiser = adamw(
            self.towers.model, learning_rate=self._learning_rate, weight_decay=self._weight_decay, rates=self.rates
        )
        return scheduled(optimiser, self._schedule.factor)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """A step, then the temperature back into its bounds, then the average after the weights."""
        super().optimizer_step(*args, **kwargs)
        self.towers.clamp_scale()
        # Of a step that was skipped there is nothing to follow: see `StepGuard`, which leaves no gradients then.
        moved = any(parameter.grad is not None for parameter in self.towers.parameters())
        if self.average is not None and self._ema_decay is not None and moved:
            self.average.follow(self.towers, warmed_up_momentum(self._ema_decay, self.global_step))

    def trained(self) -> DualEncoder:
        """The towers that the run is for: the average where one is kept."""
        if self.average is None:
            return self.towers
        towers: DualEncoder = self.average.network  # type: ignore[assignment]
        return towers

    def exported(self) -> nn.Module:
        """What a checkpoint keeps: the open_clip model of `trained`."""
        return self.trained().model
