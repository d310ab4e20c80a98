"""What a configuration means for the pictures at hand: how they are stored, what a method is told, what is recorded."""

from __future__ import annotations

from pathlib import Path

from twinlens.encoders.manifest import Lineage, PreprocessSpec
from twinlens.training.checkpoint import CheckpointMeta
from twinlens.training.data.picture_set import WHERE_CLASSES_STAND, PictureSet, classes_found
from twinlens.training.data.picture_sources import load_pictures
from twinlens.training.data.picture_tables import PictureColumns
from twinlens.training.errors import ConfigError
from twinlens.training.image_checkpoint import ImageEncoderSpec
from twinlens.training.image_config import ImageTrainConfig
from twinlens.training.methods.image_method import ImageMethod
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.opening_line import opening_line
from twinlens.training.precision import precision_of
from twinlens.training.ranks import Ranks
from twinlens.training.run_records import PACKAGES
from twinlens.training.versions import versions

# Steps between two reports where the run does not say, and how many reports a short one has at the least.
_LOG_EVERY = 20
_LEAST_ROWS = 20


def load(config: ImageTrainConfig, path: Path, *, spill: Path | None = None) -> PictureSet:
    """The pictures at `path`, as the configuration stores them.

    Args:
        config: Of the run.
        path: Where they are.
        spill: See `load_pictures`.

    Raises:
        DataError: if they cannot be used.
    """
    data = config.data
    return load_pictures(
        path,
        side=data.side or stored_side(config.size),
        smallest=config.size,
        limit=data.limit,
        max_unreadable_share=data.max_unreadable_share,
        share_key="data.max_unreadable_share",
        columns=PictureColumns(data.image_column, data.label_column),
        images=data.images,
        labels=data.labels,
        spill=spill,
    )


def stored_side(size: int) -> int:
    """Crops of `size` are cut from pictures half as large again, so that small crops are not enlarged much."""
    return size if size <= 32 else size * 3 // 2


def check_before_loading(config: ImageTrainConfig, kind: type[ImageMethod]) -> None:
    """Refuses what is wrong whatever the pictures are: no one should wait for them to learn of it.

    Raises:
        ConfigError: naming the key.
    """
    run, recipe = config.train, config.augment
    trained = run.steps != 0
    if trained and run.batch_size < 2:
        raise ConfigError(
            "train.batch_size: a batch of one has no negatives and no statistics; take at least 2, rather 64 or more"
        )
    if config.data.side is not None and config.data.side < config.size:
        raise ConfigError(f"data.side: {config.data.side} is smaller than the crop of {config.size} (augment.size)")
    if kind.needs_labels and not config.data.labels:
        raise ConfigError(f"data.labels: {config.method} learns from classes; leave it true")
    if config.knn.test is not None and not config.data.labels:
        raise ConfigError("knn.test: its pictures are told by classes, and data.labels is false; leave one of them out")
    if run.chunk_size is not None and not kind.encodes_in_chunks:
        raise ConfigError(f"train.chunk_size: {config.method} encodes a batch at once; leave it out")
    wanted = kind.wanted_global_views
    if wanted is not None and recipe.global_views != wanted:
        raise ConfigError(
            f"augment.views: {config.method} takes {wanted} full view(s) of a picture, found {recipe.global_views}"
        )
    if recipe.local_views and not kind.takes_local_views:
        raise ConfigError(f"augment.views: {config.method} takes no small views, found {recipe.local_views}")


def check_loaded(config: ImageTrainConfig, kind: type[ImageMethod], pictures: PictureSet) -> None:
    """Refuses pictures without classes where the method learns from these.

    Raises:
        ConfigError: telling how many there are, and where classes may stand.
    """
    if kind.needs_labels and not pictures.labelled:
        raise ConfigError(
            f"{config.method} needs a class for every picture, and {pictures.unlabelled:,} of {len(pictures):,} have "
            f"none: {WHERE_CLASSES_STAND}"
        )


def classes_told(pictures: PictureSet, kind: type[ImageMethod]) -> str | None:
    """The line on the classes that were found; None where there are none."""
    found = classes_found(pictures)
    if found is None or kind.needs_labels:
        return found
    return f"{found}; they only measure, and data.labels=false leaves them aside"


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
        local_sizes=tuple(sorted({view.side for view in config.augment.resolved() if view.local})),
        mean=config.model.mean,
        std=config.model.std,
        learning_rate=run.learning_rate,
        weight_decay=run.weight_decay,
        warmup_steps=round(run.warmup_share * steps),
        optimiser=run.optimiser,
        momentum=run.momentum,
        log_every=run.log_every or max(1, min(_LOG_EVERY, steps // _LEAST_ROWS)),
        chunk_size=run.chunk_size,
        world_size=world_size,
    )


def opening(config: ImageTrainConfig, pictures: PictureSet, plan: RunPlan, start: int, ranks: Ranks) -> str:
    """The line that the run begins with; `start` is the step that it goes on from."""
    classes = f" ({len(pictures.classes):,} classes)" if pictures.classes else ""
    return opening_line(
        config.method,
        trained_on=f"{len(pictures):,} pictures{classes}, crops of {config.size} px",
        samples=len(pictures),
        steps=plan.steps,
        batch_size=plan.batch_size,
        precision=precision_of(config.train.precision),
        start=start,
        threads=config.train.threads,
        ranks=ranks,
    )


def preprocess_of(config: ImageTrainConfig) -> PreprocessSpec:
    """How the exported encoder is fed."""
    size = config.size
    return PreprocessSpec(size=size, resize_size=size, mean=config.model.mean, std=config.model.std)


def spec_of(config: ImageTrainConfig) -> ImageEncoderSpec:
    """What the checkpoint says of the encoder."""
    name = config.model.name or config.method
    return ImageEncoderSpec(config.model.backbone(), preprocess_of(config), config.method, name)


def meta_of_run(
    config: ImageTrainConfig, pictures: PictureSet, plan: RunPlan, metrics: dict[str, float]
) -> CheckpointMeta:
    """Method, digests and versions, and what was measured."""
    lineage = Lineage(
        method=config.method,
        config_sha256=config.digest(),
        data_sha256=pictures.digest(),
        packages=versions(PACKAGES),
    )
    return CheckpointMeta(plan.steps, lineage, metrics)
