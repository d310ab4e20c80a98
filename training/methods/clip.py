"""CLIP: contrastive training of an image and a text tower (Radford et al. 2021), with hard negatives."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from twinlens.training.data.batches import Batch
from twinlens.training.losses.pair_features import HardNegatives, of_one_process
from twinlens.training.losses.pair_loss import PairLoss
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.optimiser import Schedule, adamw, scheduled


class Clip(pl.LightningModule):
    """A loss over pairs; mined captions and pictures are further negatives for all of them (NegCLIP)."""

    def __init__(
        self,
        towers: DualEncoder,
        loss: PairLoss,
        *,
        learning_rate: float,
        weight_decay: float,
        schedule: Schedule,
        hard_weight: float = 1.0,
    ) -> None:
        """Takes the towers and how to train them.

        Args:
            towers: Trained in place.
            loss: What they are trained by.
            learning_rate: After warm-up.
            weight_decay: Of matrices only.
            schedule: Of the learning rate.
            hard_weight: How much a mined negative counts against one of the batch.
        """
        super().__init__()
        self.towers = towers
        self._loss = loss
        self._learning_rate = learning_rate
        self._weight_decay = weight_decay
        self._schedule = schedule
        self._hard_weight = hard_weight

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:  # noqa: ARG002 - Lightning's signature
        """One step's losses by name; `loss` is the one to minimise, the others are for the log.

        Returns:
            `loss`; `accuracy`: share of pictures whose own caption scores best of all in the batch, hard ones included
            and captions that are as right aside; `scale`: the factor on cosines.
        """
        n = batch.pairs
        images = self.towers.images(batch.pixels_nhwc)
        texts = self.towers.texts(batch.token_ids_nl)
        scale = self.towers.scale()
        equal_texts, equal_images = batch.equal_texts, batch.equal_images
        # Not in bfloat16: it would round a logit of 100 by up to 0.25.
        with torch.autocast(images.device.type, enabled=False):
            features = of_one_process(
                images[:n],
                texts[:n],
                equal=equal_texts[:, :n],
                hard_texts=HardNegatives(texts[n:], self._hard_weight * ~equal_texts[:, n:]),
                hard_images=HardNegatives(images[n:], self._hard_weight * ~equal_images[:, n:]),
            )
            loss = self._loss(features, scale, self.towers.bias())
            with torch.no_grad():
                cosines = images[:n] @ texts.T
                own = cosines.diagonal().clone()
                best = cosines.masked_fill(equal_texts, -2.0).amax(dim=1)
        return {"loss": loss, "accuracy": (own > best).float().mean(), "scale": scale.detach()}

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:  # noqa: ARG002
        """Lightning cannot move frozen dataclasses by itself."""
        return batch.to(device)

    def configure_optimizers(self) -> Any:
        """AdamW, one schedule step a batch."""
        optimiser = adamw(self.towers, learning_rate=self._learning_rate, weight_decay=self._weight_decay)
        return scheduled(optimiser, self._schedule.factor)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """A step, then the temperature back into its bounds."""
        super().optimizer_step(*args, **kwargs)
        self.towers.clamp_scale()

    def exported(self) -> nn.Module:
        """What a checkpoint keeps: the open_clip model."""
        return self.towers.model
