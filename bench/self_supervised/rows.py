"""The rows of the table: which method, on which backbone, with what settings.

One convolutional network for all: a ResNet-18 of timm with one block a stage, half the channels and a 3x3 stem of
stride 2 (1.2 million weights). It takes some 800 pictures a second through a SimCLR step on one core, so that twelve
minutes are fifty walks through 10,000 pictures; a full ResNet-18 with the usual CIFAR stem would not finish two. The
masked autoencoder needs patches, so it has a ViT of 64 patches instead, and DINO is shown on both.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinlens.training.augment.ablation import Ablation

CONVOLUTIONAL = (
    'model.timm="resnet18"',
    'model.stem="cifar_stride2"',
    "model.arguments={layers = [1, 1, 1, 1], channels = [32, 64, 128, 256]}",
)
VIT = (
    'model.timm="vit_tiny_patch16_224"',
    'model.stem="imagenet"',
    'model.arguments={patch_size = 4, embed_dim = 192, depth = 6, num_heads = 3, global_pool = "avg"}',
)
# CIFAR-10's own statistics.
COMMON = (
    "model.mean=[0.4914, 0.4822, 0.4465]",
    "model.std=[0.2470, 0.2435, 0.2616]",
    "augment.size=32",
    "train.batch_size=256",
    "knn.every_epochs=0",
)


_RATE = "train.learning_rate=2e-3"
_ADAMW = ('train.optimiser="adamw"', _RATE, "train.weight_decay=1e-4", "train.warmup_share=0.05")
_SIMCLR = ("method.temperature=0.2", _RATE)
_MOCO = ("method.momentum=0.99", *_ADAMW)
# More and smaller steps than the others': what has no negatives starts slowly.
_BYOL = ("method.hidden=512", "method.momentum=0.98", "train.batch_size=128", "train.learning_rate=4e-3")
_SIMSIAM = ("method.hidden=512", "method.dim=512", "method.predictor_hidden=128", "train.batch_size=128", *_ADAMW)
# Ten crops, most of them tiny, cost a small ViT more than they teach it.
_TWO_CROPS = (
    (
        "augment.views=[{count = 2, crop_scale = [0.25, 1.0], crop_ratio = [0.75, 1.3333333333333333], flip = 0.5, "
        "jitter = {probability = 0.8, brightness = 0.4, contrast = 0.4, saturation = 0.2, hue = 0.1}, grayscale = 0.2}]"
    ),
    "train.batch_size=64",
)
_DINO = ("method.outputs=1024", "method.warmup_teacher_temperature_epochs=5")


ABLATION = "ablation"


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        name: In the table, and of its files.
        method: As in `twinlens train METHOD`.
        family: What kind of method it is.
        settings: `--set` values over the method's recipe and `COMMON`.
        ablate: As in `--ablate`.
        vit: Whether it has the ViT.
        untrained: Whether it is left at its random start.
    """

    name: str
    method: str
    family: str
    settings: tuple[str, ...] = ()
    ablate: Ablation | None = None
    vit: bool = False
    untrained: bool = False

    def all_settings(self) -> tuple[str, ...]:
        """Everything over the recipe, the row's own last."""
        return (*COMMON, *(VIT if self.vit else CONVOLUTIONAL), *self.settings)


# Heads and queues as wide as a network of this size and 10,000 pictures can use; rates for a run of minutes.
METHODS = (
    Row("random", "random", "ends of the scale", untrained=True),
    Row("supervised", "supervised", "ends of the scale"),
    Row("simclr", "simclr", "contrastive", _SIMCLR),
    Row("moco", "moco", "contrastive", (*_MOCO, "method.queue_size=2048")),
    Row("moco_v3", "moco", "contrastive", ("method.version=3", "method.hidden=1024", *_ADAMW)),
    Row("byol", "byol", "negative-free", _BYOL),
    Row("simsiam", "simsiam", "negative-free", _SIMSIAM),
    Row("swav", "swav", "clustering", ("method.prototypes=100", _RATE)),
    Row("dino", "dino", "distillation", (*_DINO, _RATE)),
    Row("barlow_twins", "barlow_twins", "redundancy reduction", ("method.dim=1024", _RATE)),
    Row("vicreg", "vicreg", "redundancy reduction", ("method.dim=1024", _RATE)),
    Row("autoencoder", "autoencoder", "pretext"),
    Row("colorization", "colorization", "pretext"),
    Row("jigsaw", "jigsaw", "pretext"),
    # With the weights and positions that its method starts from.
    Row("mae_vit_untrained", "mae", "ends of the scale", vit=True, untrained=True),
    Row("mae_vit", "mae", "masked", vit=True),
    Row("dino_vit", "dino", "distillation", (*_DINO, *_TWO_CROPS), vit=True),
)


@dataclass(frozen=True)
class Question:
    """What is varied, and the runs that answer it."""

    title: str
    rows: tuple[Row, ...]


def _rows(method: str, key: str, values: tuple[object, ...], *extra: str) -> tuple[Row, ...]:
    short = key.rpartition(".")[2]
    return tuple(
        Row(f"{method}-{short}-{value}", method, ABLATION, (f"{key}={_toml(value)}", *extra)) for value in values
    )


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


QUESTIONS = (
    Question(
        "augmentation (SimCLR)",
        tuple(
            Row(f"simclr-augment-{kept.value}", "simclr", ABLATION, _SIMCLR, ablate=kept)
            for kept in (Ablation.NONE, Ablation.CROP, Ablation.JITTER, Ablation.BOTH)
        ),
    ),
    Question("projection head (SimCLR)", _rows("simclr", "method.head", ("none", "linear", "mlp"), *_SIMCLR)),
    Question("batch size (SimCLR)", _rows("simclr", "train.batch_size", (32, 128, 512), *_SIMCLR)),
    Question("queue size (MoCo)", _rows("moco", "method.queue_size", (512, 2048, 8192), *_MOCO)),
    Question(
        "momentum (MoCo)", _rows("moco", "method.momentum", (0.9, 0.99, 0.999), *_MOCO[1:], "method.queue_size=2048")
    ),
)
