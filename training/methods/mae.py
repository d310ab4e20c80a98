"""Masked autoencoder: a ViT that sees a quarter of the patches and predicts the others (He et al. 2022)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError
from twinlens.training.losses.masked_reconstruction import masked_reconstruction
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.masked_decoder import MaskedDecoder
from twinlens.training.modules.masked_vit import (
    check_maskable,
    encode_visible,
    patch_rows,
    patch_side,
    start_as_mae,
)
from twinlens.training.modules.patches import patches_of
from twinlens.training.modules.random_masking import random_masking, visible_count
from twinlens.training.modules.short_attention import short_attention

# The paper's pictures have 196; a quarter of fewer than this is hardly a picture.
_FEW_PATCHES = 32


class MAEOptions(MethodOptions):
    """How much is hidden, and what predicts it.

    Attributes:
        mask_share: Share of hidden patches (§4.1: 75 % serves both probing and fine-tuning).
        normalise_patches: Whether each patch is predicted on its own scale (table 1d).
        decoder_width: Of the decoder's tokens.
        decoder_depth: Blocks of the decoder.
        decoder_heads: Of its attention.
        beta2: Of AdamW (table 8: 0.95).
    """

    mask_share: float = Field(default=0.75, gt=0, lt=1)
    normalise_patches: bool = True
    decoder_width: int = Field(default=512, ge=4)
    decoder_depth: int = Field(default=8, ge=1, le=128)
    decoder_heads: int = Field(default=16, ge=1)
    beta2: float = Field(default=0.95, gt=0, lt=1)


class MAE(ImageMethod):
    """Predicts the pixels of hidden patches; what is exported sees all of them and pools them as the ViT does."""

    name: ClassVar[str] = "mae"
    Options: ClassVar[type[MethodOptions]] = MAEOptions
    wanted_global_views: ClassVar[int | None] = 1
    options: MAEOptions

    def __init__(self, backbone: Backbone, options: MAEOptions, plan: RunPlan) -> None:
        """Draws the encoder's weights anew and adds the decoder."""
        super().__init__(backbone, options, plan)
        start_as_mae(backbone)
        self.decoder = MaskedDecoder(
            encoder_dim=backbone.dim,
            rows=patch_rows(backbone),
            patch_values=3 * patch_side(backbone) ** 2,
            prefix=int(backbone.trunk.num_prefix_tokens),
            width=options.decoder_width,
            depth=options.decoder_depth,
            heads=options.decoder_heads,
        )

    @classmethod
    def check(cls, options: MAEOptions, plan: RunPlan, backbone: Backbone) -> None:
        """Refuses encoders that cannot skip patches, and sizes that do not fit."""
        check_maskable(backbone)
        side = patch_side(backbone)
        if plan.size % side or plan.size != backbone.size:
            raise ConfigError(f"augment.size: {plan.size} is no multiple of the patch side {side}")
        try:
            visible_count(patch_rows(backbone) ** 2, options.mask_share)
        except ValueError as error:
            raise ConfigError(f"method.mask_share: {error}; take smaller patches or another share") from None
        if options.decoder_width % 4 or options.decoder_width % options.decoder_heads:
            raise ConfigError(
                f"method.decoder_width: {options.decoder_width} must be a multiple of 4 and of "
                f"decoder_heads ({options.decoder_heads})"
            )

    @classmethod
    def advice(cls, options: MAEOptions, plan: RunPlan, backbone: Backbone) -> list[str]:  # noqa: ARG003 - the base's
        """Names smaller patches where a picture is cut into few: what is hidden can then only be guessed."""
        patches, side = patch_rows(backbone) ** 2, patch_side(backbone)
        if patches >= _FEW_PATCHES:
            return []
        seen = visible_count(patches, options.mask_share)
        smaller = f"; model.arguments.patch_size={side // 2} makes {4 * patches}" if side % 2 == 0 else ""
        return [f"a picture is cut into {patches} patches, of which {seen} are seen: little to learn from{smaller}"]

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:  # noqa: ARG002 - the base's signature
        """Hides, encodes what is left, predicts the rest."""
        pixels = views[0]
        side = patch_side(self.backbone)
        patches = patch_rows(self.backbone) ** 2
        masking = random_masking(len(pixels), patches, self.options.mask_share, device=pixels.device)
        with short_attention(pixels.device, patches):
            tokens = encode_visible(self.backbone, pixels, masking.visible_nk)
            predicted = self.decoder(tokens, masking.visible_nk)
        with torch.autocast(pixels.device.type, enabled=False):
            loss = masked_reconstruction(
                predicted,
                patches_of(pixels, side),
                masking.masked_nl,
                normalise=self.options.normalise_patches,
            )
        return StepOutput(loss, embeddings=(tokens[:, self.decoder.prefix :].mean(dim=1).detach(),))

    def collapse_causes(self) -> str:
        """The encoder is ignored only where the decoder can do without it."""
        return "the decoder predicts without the encoder: learning_rate is too high or too little is visible"

    def configure_optimizers(self) -> Any:
        """The plan's; AdamW with the paper's β₂."""
        configured = super().configure_optimizers()
        for group in configured["optimizer"].param_groups:
            if "betas" in group:
                group["betas"] = (group["betas"][0], self.options.beta2)
        return configured
