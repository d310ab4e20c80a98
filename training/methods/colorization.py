"""Colourisation: the colours of a picture from its lightness (Zhang, Isola and Efros 2016)."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError
from twinlens.training.losses.rebalanced_colour import rebalanced_cross_entropy
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.ab_bins import AbBins
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.colour_prior import ColourPrior
from twinlens.training.modules.grey_stem import fold_luma, grey_pixels
from twinlens.training.modules.lab_colour import grey_of_lightness, lab_of
from twinlens.training.modules.spatial_map import map_side, spatial_map
from twinlens.training.modules.upsampling import UpsamplingDecoder


class ColorizationOptions(MethodOptions):
    """What is predicted, and how rare colours are weighed.

    Attributes:
        output_stride: Colours are predicted for every so many pixels (4 in the paper, as in its figure 2).
        width: Channels of the layers that predict them.
        neighbours: Bins that share a pixel's colour.
        sigma: Of the Gaussian by which they share it.
        uniform_share: λ of the rebalancing: 1 leaves rare colours as rare as they are.
    """

    output_stride: int = Field(default=4, ge=1)
    width: int = Field(default=256, ge=1)
    neighbours: int = Field(default=5, ge=1, le=32)
    sigma: float = Field(default=5.0, gt=0)
    uniform_share: float = Field(default=0.5, gt=0, le=1)


class Colorization(ImageMethod):
    """Classifies the colour of every place among the bins of a*b*, from L* alone.

    The encoder is shown the grey picture of the same L*. What is exported takes coloured pictures and looks at their
    luma: it is folded into the first convolution.
    """

    name: ClassVar[str] = "colorization"
    Options: ClassVar[type[MethodOptions]] = ColorizationOptions
    wanted_global_views: ClassVar[int | None] = 1
    options: ColorizationOptions
    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone, options: ColorizationOptions, plan: RunPlan) -> None:
        """Adds the layers that predict colours."""
        super().__init__(backbone, options, plan)
        self.bins = AbBins(neighbours=options.neighbours, sigma=options.sigma)
        self.prior = ColourPrior(self.bins, uniform_share=options.uniform_share)
        self.decoder = UpsamplingDecoder(
            channels_in=backbone.dim,
            side_in=map_side(backbone),
            width=options.width,
            channels_out=self.bins.count,
            side_out=len(self._predicted(torch.zeros(plan.size))),
        )
        self.register_buffer("mean", torch.tensor(plan.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(plan.std).view(3, 1, 1), persistent=False)

    @classmethod
    def check(cls, options: ColorizationOptions, plan: RunPlan, backbone: Backbone) -> None:
        """Refuses encoders without a map of features, and a stride that leaves nothing to predict."""
        if options.output_stride * 2 > plan.size:
            raise ConfigError(
                f"method.output_stride: {options.output_stride} leaves no map of a picture of {plan.size} pixels"
            )
        map_side(backbone)

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:  # noqa: ARG002 - the base's signature
        """Splits light from colour, predicts the colour of every place."""
        with torch.autocast(views[0].device.type, enabled=False), torch.no_grad():
            # Interpolation and normalisation leave values a hair outside.
            lab = lab_of((views[0].float() * self.std + self.mean).clamp(0, 1))
            grey = grey_pixels(grey_of_lightness(lab[:, 0]), self.plan.mean, self.plan.std)
            bins, shares = self.bins.soft(self._predicted(self._predicted(lab[:, 1:]).mT).mT)
            self.prior.see(bins[..., 0])
            weights = self.prior.weights()
        features = spatial_map(self.backbone, grey)
        logits = self.decoder(features)
        with torch.autocast(logits.device.type, enabled=False):
            loss = rebalanced_cross_entropy(logits, bins, shares, weights)
            right = (logits.detach().argmax(dim=1) == bins[..., 0]).float().mean()
        pooled = features.detach().float().mean(dim=(2, 3))
        return StepOutput(loss, {"accuracy": right}, (pooled,))

    def _predicted(self, values: Tensor) -> Tensor:
        """Every so many of the last dimension, as the authors subsample; from the middle of a stride."""
        return values[..., self.options.output_stride // 2 :: self.options.output_stride]

    def exported(self) -> Backbone:
        """The encoder, looking at the luma of coloured pictures."""
        return fold_luma(self.backbone)

    def collapse_causes(self) -> str:
        """What makes the encoder give up."""
        return "the network answers with the commonest colours: learning_rate is too high, or the pictures are grey"
