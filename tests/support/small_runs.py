"""Runs of methods on pictures alone that take seconds: small networks, and pictures with something to learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.training.augment.augmenter import Augmenter
from twinlens.training.augment.recipe import AugmentRecipe, ViewGroup
from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.data.picture_batches import PictureBatches
from twinlens.training.data.picture_set import PictureSet
from twinlens.training.loop import fit
from twinlens.training.methods.image_method import ImageMethod
from twinlens.training.modules.backbone import Backbone, build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig

SIZE = 16
RESNET = BackboneConfig(timm="resnet10t", arguments={"channels": [8, 8, 16, 16]})
VIT = BackboneConfig(
    timm="vit_tiny_patch16_224", arguments={"patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
)


def small_backbone(config: BackboneConfig = RESNET, size: int = SIZE) -> Backbone:
    """The same weights every time."""
    torch.manual_seed(0)
    return build_backbone(config, size)


def random_views(count: int = 2, local: int = 0, *, n: int = 8, seed: int = 0) -> list[Tensor]:
    """Views of noise, the local ones half as large."""
    generator = torch.Generator().manual_seed(seed)
    sides = [SIZE] * count + [SIZE // 2] * local
    return [
        torch.randn(n, 3, side, side, generator=generator).contiguous(memory_format=torch.channels_last)
        for side in sides
    ]


def empty_batch(n: int = 8) -> PictureBatch:
    """For methods that look at views only."""
    return PictureBatch(torch.zeros(n, SIZE, SIZE, 3, dtype=torch.uint8), torch.full((n,), -1), torch.arange(n), 0)


class Stepping(nn.Module):
    """A method's step as a forward pass, which is what data-parallel training wraps."""

    def __init__(self, method: ImageMethod) -> None:
        super().__init__()
        self.method = method

    def forward(self, views: list[Tensor], batch: PictureBatch | None = None) -> Tensor:
        return self.method.step(views, empty_batch(len(views[0])) if batch is None else batch).loss


def tinted_noise(count: int, *, seed: int = 0) -> PictureSet:
    """Pictures of noise, each with a tint of its own that crops share."""
    rng = np.random.default_rng(seed)
    tints = rng.integers(0, 256, (count, 1, 1, 3))
    noise = rng.integers(-30, 31, (count, SIZE, SIZE, 3))
    pixels = np.clip(tints + noise, 0, 255).astype(np.uint8)
    return PictureSet(
        pixels_nhwc=pixels,
        labels=np.full(count, -1, dtype=np.int64),
        classes=(),
        names=tuple(f"{i}.png" for i in range(count)),
        digests=tuple(str(i) for i in range(count)),
        unreadable={},
    )


def crops(local: int = 0) -> AugmentRecipe:
    """Two full crops and some local ones; no change of colour."""
    groups = [ViewGroup(count=2, crop_scale=(0.3, 1.0), flip=0.5)]
    if local:
        groups.append(ViewGroup(count=local, size=0.5, crop_scale=(0.1, 0.3), flip=0.5))
    return AugmentRecipe(size=SIZE, views=tuple(groups))


def train(
    method: ImageMethod, folder: Path, *, pictures: PictureSet | None = None, local: int = 0
) -> list[dict[str, float]]:
    """Trains as the method's plan says, on the CPU with one thread; every report of the loop that has values."""
    folder.mkdir(exist_ok=True)
    plan = method.plan
    pictures = tinted_noise(plan.dataset_size) if pictures is None else pictures
    method.augmenter = Augmenter(crops(local), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), seed=0)
    reports: list[dict[str, float]] = []

    def keep(step: int, values: dict[str, float]) -> None:
        if values:  # else it only says that the run lives
            reports.append({"step": step, **values})

    fit(
        method,
        PictureBatches(pictures, plan.batch_size, seed=0),
        steps=plan.steps,
        precision="fp32",
        log_every=plan.log_every,
        metrics_csv=folder / "metrics.csv",
        progress=keep,
        threads=1,
    )
    return reports
