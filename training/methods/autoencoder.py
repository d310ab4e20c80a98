"""Autoencoder: a picture from its own embedding (Hinton & Salakhutdinov 2006), denoising (Vincent et al. 2008)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.corruption import Noise, corrupted
from twinlens.training.modules.upsampling import UpsamplingDecoder


class AutoencoderOptions(MethodOptions):
    """What is spoiled, and what rebuilds.

    Attributes:
        noise: `masking` (Vincent et al. 2008), `gaussian`, or `none` for a plain autoencoder.
        noise_level: Share of masked places, or standard deviation in normalised units.
        width: Channels of the decoder's first layers.
    """

    noise: Noise = "masking"
    noise_level: float = Field(default=0.25, ge=0)
    width: int = Field(default=256, ge=1)


class Autoencoder(ImageMethod):
    """Rebuilds the clean picture, pixel by pixel, from the pooled embedding: the same vector that is exported."""

    name: ClassVar[str] = "autoencoder"
    Options: ClassVar[type[MethodOptions]] = AutoencoderOptions
    wanted_global_views: ClassVar[int | None] = 1
    options: AutoencoderOptions

    def __init__(self, backbone: Backbone, options: AutoencoderOptions, plan: RunPlan) -> None:
        """Adds the decoder."""
        super().__init__(backbone, options, plan)
        side = coarsest_side(plan.size)
        self.decoder = nn.Sequential(
            nn.Linear(backbone.dim, options.width * side * side),
            nn.Unflatten(1, (options.width, side, side)),
            UpsamplingDecoder(
                channels_in=options.width, side_in=side, width=options.width, channels_out=3, side_out=plan.size
            ),
        )

    @classmethod
    def check(cls, options: AutoencoderOptions, plan: RunPlan, backbone: Backbone) -> None:  # noqa: ARG003 - the base's
        """Refuses to blank every pixel."""
        if options.noise == "masking" and options.noise_level >= 1:
            raise ConfigError(
                f"method.noise_level: masking blanks a share of the pixels, and {options.noise_level:g} leaves none; "
                "take less than 1"
            )

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:  # noqa: ARG002 - the base's signature
        """Spoils, embeds, rebuilds."""
        clean = views[0]
        embedding = self.backbone(corrupted(clean, self.options.noise, self.options.noise_level))
        rebuilt = self.decoder(embedding)
        with torch.autocast(clean.device.type, enabled=False):
            loss = F.mse_loss(rebuilt.float(), clean.float())
        return StepOutput(loss, embeddings=(embedding.detach(),))

    def collapse_causes(self) -> str:
        """What makes the embedding carry nothing."""
        return "the decoder answers with the mean picture: learning_rate is too high, or too much is spoiled"


def coarsest_side(size: int) -> int:
    """Side of the map that the embedding becomes first: the picture's, halved until at most 4 are left."""
    while size > 4:
        size = (size + 1) // 2
    return size
