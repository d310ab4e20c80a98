"""One run of a method on pictures alone: from a configuration to a run folder with a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch

from twinlens.encoders.manifest import Lineage, PreprocessSpec
from twinlens.training.augment.augmenter import Augmenter
from twinlens.training.checkpoint import CheckpointMeta
from twinlens.training.config import ConfigError
from twinlens.training.data.picture_batches import PictureBatches
from twinlens.training.data.picture_set import PictureSet
from twinlens.training.data.picture_sources import load_pictures
from twinlens.training.image_checkpoint import ImageEncoderSpec, save_image_checkpoint
from twinlens.training.image_config import ImageTrainConfig
from twinlens.training.loop import fit
from twinlens.training.methods.registry import image_method
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.global_batch_norm import share_batch_norm
from twinlens.training.progress import Report
from twinlens.training.ranks import launched_ranks
from twinlens.training.run_records import PACKAGES, write_records
from twinlens.training.versions import versions


@dataclass(frozen=True)
class ImageTrainResult:
    """What a run left behind.

    Attributes:
        checkpoint: The file.
        pictures: How many pictures it was trained on.
        steps: Of the optimiser.
        unreadable: What was left out, and why.
        last: The last report of the loop.
        knn: The last accuracy by nearest neighbours, 0 to 1; None where pictures have no classes.
    """

    checkpoint: Path
    pictures: int
    steps: int
    unreadable: dict[str, str]
    last: dict[str, float]
    knn: float | None

    def summary(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "checkpoint": str(self.checkpoint),
            "pictures": self.pictures,
            "steps": self.steps,
            "unreadable": self.unreadable,
            "metrics": self.last,
            "knn": self.knn,
        }

    def told(self) -> str:
        """In a few words."""
        measured = "" if self.knn is None else f", kNN accuracy {self.knn:.3f}"
        return f"{self.steps} steps on {self.pictures:,} pictures{measured}"

    def warnings(self) -> list[str]:
        """What a person should know: what was left out, once, with the first of its kind."""
        if not self.unreadable:
            return []
        first, reason = next(iter(self.unreadable.items()))
        return [f"left out {len(self.unreadable)} unusable picture(s); the first is {first}: {reason}"]


def train_images(
    config: ImageTrainConfig, out: Path, reporting: Callable[[int], AbstractContextManager[Report]]
) -> ImageTrainResult:
    """Trains an image encoder and writes a run folder.

    It holds config.json, environment.json, data.json, metrics.csv, evaluations.csv and checkpoint.pt.

    The same configuration on the same machine gives the same weights. Processes that `torchrun` started share each
    batch; the first one writes.

    Args:
        config: What to train on what.
        out: The run folder; must be new or empty.
        reporting: Given the number of steps, opens what is called with the step and the named values of each report.

    Raises:
        ConfigError: if the run folder is in use, or the configuration cannot be trained.
        DataError: if the pictures cannot be trained on.
        CheckpointError: if the checkpoint cannot be written.
        TrainingError: if the loss is no longer finite, or the embeddings collapse.
    """
    ranks = launched_ranks()
    # The others may come when the first has begun to write.
    if ranks.is_first and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is not an empty folder; name a new one for the run")
    # First: a mistyped name should not wait for the data.
    method_class = image_method(config.method)
    pl.seed_everything(config.train.seed, verbose=False)
    backbone = build_backbone(config.model.backbone(), config.size)
    pictures = load(config, config.data.path)
    batches = PictureBatches(
        pictures, config.train.batch_size, config.train.seed, rank=ranks.rank, world_size=ranks.world_size
    )
    plan = plan_of(config, pictures, ranks.world_size)
    if method_class.needs_labels and not pictures.labelled:
        raise ConfigError(f"{config.method} needs a class for every picture: put them in one folder per class")
    if plan.chunk_size is not None and not method_class.encodes_in_chunks:
        raise ConfigError(f"train.chunk_size: {config.method} encodes a batch at once; leave it out")
    options = config.options()
    method_class.check(options, plan, backbone)
    method = method_class(backbone, options, plan)
    method.augmenter = Augmenter(
        config.augment,
        config.model.mean,
        config.model.std,
        config.train.seed,
        mode=config.train.augmentation,
        rank=ranks.rank,
        world_size=ranks.world_size,
    )
    if ranks.is_first:
        out.mkdir(parents=True, exist_ok=True)
        write_records(
            out,
            config=config.model_dump(mode="json"),
            data={
                "sha256": pictures.digest(),
                "pictures": len(pictures),
                "classes": list(pictures.classes),
                "unreadable": pictures.unreadable,
            },
        )
    method.to(memory_format=torch.channels_last)
    if ranks.world_size > 1 and method_class.global_batch_norm:
        share_batch_norm(method)
    with reporting(plan.steps) if ranks.is_first else nullcontext(_silent) as progress:
        last = fit(
            method,
            batches,
            steps=plan.steps,
            precision=precision_of(config.train.precision),
            log_every=config.train.log_every,
            metrics_csv=out / "metrics.csv",
            progress=progress,
            threads=config.train.threads,
            ranks=ranks,
        )
    checkpoint = out / "checkpoint.pt"
    if ranks.is_first:
        save_image_checkpoint(checkpoint, spec_of(config), method.exported(), meta_of_run(config, pictures, plan))
    return ImageTrainResult(checkpoint, len(pictures), plan.steps, pictures.unreadable, last, None)


def load(config: ImageTrainConfig, path: Path) -> PictureSet:
    """The pictures at `path`, as the configuration stores them."""
    data = config.data
    return load_pictures(
        path,
        side=data.side or stored_side(config.size),
        smallest=config.size,
        limit=data.limit,
        max_unreadable_share=data.max_unreadable_share,
    )


def stored_side(size: int) -> int:
    """Crops of `size` are cut from pictures half as large again, so that small crops are not enlarged much."""
    return size if size <= 32 else size * 3 // 2


def _silent(step: int, values: dict[str, float]) -> None:
    """Ranks other than the first say nothing."""


def plan_of(config: ImageTrainConfig, pictures: PictureSet, world_size: int = 1) -> RunPlan:
    """What the method is told of the run."""
    run = config.train
    per_epoch = max(1, len(pictures) // run.batch_size)
    steps = run.steps if run.steps is not None else max(1, round(run.epochs * per_epoch))
    return RunPlan(
        steps=steps,
        batch_size=run.batch_size,
        dataset_size=len(pictures),
        classes=len(pictures.classes) if pictures.labelled else 0,
        global_views=config.augment.global_views,
        local_views=config.augment.local_views,
        size=config.size,
        mean=config.model.mean,
        std=config.model.std,
        learning_rate=run.learning_rate,
        weight_decay=run.weight_decay,
        warmup_steps=round(run.warmup_share * steps),
        optimiser=run.optimiser,
        momentum=run.momentum,
        log_every=run.log_every,
        chunk_size=run.chunk_size,
        world_size=world_size,
    )


def precision_of(asked: Literal["auto", "fp32", "bf16"]) -> Literal["fp32", "bf16"]:
    """`auto` is bf16 where the processor computes in it, for elsewhere it is emulated and slow."""
    if asked != "auto":
        return asked
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if torch.cpu.get_capabilities().get("avx512_bf16") else "fp32"


def spec_of(config: ImageTrainConfig) -> ImageEncoderSpec:
    """What the checkpoint says of the encoder."""
    size = config.size
    preprocess = PreprocessSpec(size=size, resize_size=size, mean=config.model.mean, std=config.model.std)
    return ImageEncoderSpec(config.model.backbone(), preprocess, config.method, config.model.name or config.method)


def meta_of_run(config: ImageTrainConfig, pictures: PictureSet, plan: RunPlan) -> CheckpointMeta:
    """Method, digests and versions, and what was measured."""
    lineage = Lineage(
        method=config.method,
        config_sha256=config.digest(),
        data_sha256=pictures.digest(),
        packages=versions(PACKAGES),
    )
    return CheckpointMeta(plan.steps, lineage)
