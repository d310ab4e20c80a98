"""Jigsaw puzzles: in which of a set of orders the tiles of a picture were shuffled (Noroozi and Favaro 2016)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError, first_line
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone, features_of_blank
from twinlens.training.modules.jigsaw_permutations import distant_permutations
from twinlens.training.modules.jigsaw_tiles import jigsaw_tiles, tile_side

GRID = 3
# A ResNet with the small stem still sees something in a tile of so many pixels.
SMALLEST_TILE = 4


class JigsawOptions(MethodOptions):
    """The puzzles, and what solves them.

    Attributes:
        permutations: How many orders are told apart (1000 in the paper).
        channel_shift: Pixels by which colour channels are moved against each other, at most (§3.4: 2).
        tile_width: Values that remain of each tile (fc6 in the paper: 512).
        width: Of the layer over all tiles (fc7 in the paper: 4096).
        dropout: Behind it.
    """

    permutations: int = Field(default=1000, ge=2, le=5000)
    channel_shift: int = Field(default=2, ge=0, le=1024)
    tile_width: int = Field(default=512, ge=1)
    width: int = Field(default=4096, ge=1)
    dropout: float = Field(default=0.5, ge=0, lt=1)


class Jigsaw(ImageMethod):
    """The context-free network: the encoder sees each tile alone, and only the last layers see them together."""

    name: ClassVar[str] = "jigsaw"
    Options: ClassVar[type[MethodOptions]] = JigsawOptions
    wanted_global_views: ClassVar[int | None] = 1
    options: JigsawOptions
    orders: Tensor

    def __init__(self, backbone: Backbone, options: JigsawOptions, plan: RunPlan) -> None:
        """Chooses the orders and adds the layers that tell them apart."""
        super().__init__(backbone, options, plan)
        # Not in a checkpoint: the same count gives the same orders.
        orders = torch.from_numpy(distant_permutations(options.permutations, GRID * GRID).copy())
        self.register_buffer("orders", orders, persistent=False)
        self.tile_head = nn.Sequential(nn.Linear(backbone.dim, options.tile_width), nn.ReLU(inplace=True))
        self.puzzle_head = nn.Sequential(
            nn.Linear(GRID * GRID * options.tile_width, options.width),
            nn.ReLU(inplace=True),
            nn.Dropout(options.dropout),
            nn.Linear(options.width, options.permutations),
        )

    @classmethod
    def check(cls, options: JigsawOptions, plan: RunPlan, backbone: Backbone) -> None:  # noqa: ARG003 - the base's
        """Refuses encoders that cannot take tiles, and pictures too small to cut."""
        if backbone.is_vit:
            raise ConfigError(
                f"model.timm: jigsaw shows the encoder single tiles, which {backbone.config.timm} is not built for; "
                "take a ResNet"
            )
        side = tile_side(plan.size, GRID)
        if side < SMALLEST_TILE:
            raise ConfigError(f"augment.size: tiles of a picture of {plan.size} pixels would have {side}; at least 15")
        try:
            features_of_blank(backbone, side)
        except (RuntimeError, AssertionError, ValueError) as error:
            raise ConfigError(
                f"model.timm: {backbone.config.timm} does not take tiles of {side}x{side} pixels: "
                f"{first_line(error)}; take larger pictures (augment.size) or a ResNet"
            ) from error

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:  # noqa: ARG002 - the base's signature
        """Cuts, shuffles, asks for the order."""
        n = len(views[0])
        tiles = jigsaw_tiles(views[0], GRID, channel_shift=self.options.channel_shift)
        answer = torch.randint(0, len(self.orders), (n,), device=tiles.device)
        shuffled = tiles[torch.arange(n, device=tiles.device)[:, None], self.orders[answer]]
        features = self.backbone(shuffled.flatten(0, 1).contiguous(memory_format=torch.channels_last))
        logits = self.puzzle_head(self.tile_head(features).unflatten(0, (n, -1)).flatten(1))
        with torch.autocast(logits.device.type, enabled=False):
            loss = F.cross_entropy(logits.float(), answer)
            right = (logits.detach().argmax(dim=1) == answer).float().mean()
        # All tiles of a picture, not two views of it: their order says nothing of agreement.
        return StepOutput(loss, {"accuracy": right}, (features.detach().unflatten(0, (n, -1)).mean(dim=1),))

    def collapse_causes(self) -> str:
        """What makes the encoder give up."""
        return "the encoder tells tiles no longer apart: learning_rate is too high or the pictures have no structure"
