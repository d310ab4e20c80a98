"""One run of a method on pictures alone: from a configuration to a run folder with a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytorch_lightning as pl
import torch

from twinlens.training.augment.augmenter import Augmenter
from twinlens.training.data.picture_batches import PictureBatches
from twinlens.training.data.picture_set import UNLABELLED, PictureSet
from twinlens.training.errors import ConfigError, first_line
from twinlens.training.evaluation.curves import write_curves
from twinlens.training.evaluation.knn_callback import KnnCallback
from twinlens.training.image_checkpoint import save_image_checkpoint
from twinlens.training.image_config import ImageTrainConfig
from twinlens.training.image_plan import (
    check_before_loading,
    check_loaded,
    classes_told,
    load,
    meta_of_run,
    opening,
    plan_of,
    preprocess_of,
    spec_of,
)
from twinlens.training.image_result import ImageTrainResult, knn_before
from twinlens.training.interruption import Interruption
from twinlens.training.loop import fit
from twinlens.training.methods.image_method import ImageMethod, MethodOptions
from twinlens.training.methods.registry import image_method
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone, build_backbone
from twinlens.training.modules.global_batch_norm import share_batch_norm
from twinlens.training.precision import precision_of
from twinlens.training.progress import Report, Say, silent, silent_report
from twinlens.training.ranks import Ranks, launched_ranks
from twinlens.training.run_files import CHECKPOINT_FILE, EVALUATIONS_FILE, METRICS_FILE, STATE_FILE
from twinlens.training.run_folder import cut_tables, run_folder
from twinlens.training.run_records import write_records
from twinlens.training.run_state import RunIdentity, RunState, discard_state, read_state

_MOST_VOTERS = 20_000
_MOST_LEFT_OUT = 5_000


def train_images(
    config: ImageTrainConfig,
    out: Path,
    reporting: Callable[[int], AbstractContextManager[Report]],
    *,
    resume: bool = False,
    say: Say = silent,
) -> ImageTrainResult:
    """Trains an image encoder and writes a run folder.

    It holds config.json, environment.json, data.json, metrics.csv, evaluations.csv (where pictures have classes),
    curves.png, checkpoint.pt and, while the run is under way, state.pt.

    The same configuration on the same machine gives the same weights, also where the run was interrupted and resumed.
    Processes that `torchrun` started share each batch; the first one writes.

    Args:
        config: What to train on what.
        out: The run folder; must be new or empty, or to be resumed.
        reporting: Given the number of steps, opens what is called with the step and the named values of each report.
        resume: Go on from the state in `out`, which an interrupted run of the same configuration left there.
        say: Told in a line what is read, and what is then done with it.

    Raises:
        ConfigError: if the run folder is in use, holds nothing to resume or another run, or the configuration cannot be
            trained.
        DataError: if the pictures cannot be trained on.
        CheckpointError: if the checkpoint or the state cannot be written, or the state not be gone on from.
        TrainingError: if the loss is no longer finite, or the embeddings collapse.
        RunInterrupted: if SIGINT or SIGTERM came during the run; its state is written.
    """
    ranks = launched_ranks()
    with (
        run_folder(out, config.model_dump(mode="json"), resume=resume, first=ranks.is_first),
        Interruption(ranks) as interruption,
    ):
        run = _prepare(config, out, ranks, interruption, say if ranks.is_first else silent, resume=resume)
        if ranks.is_first:
            if resume:
                cut_tables(out, run.start)
            else:
                _write_records(out, config, run.pictures)
        last: dict[str, float] = {}
        if run.batches is not None:
            with reporting(run.plan.steps) if ranks.is_first else nullcontext(silent_report) as progress:
                last = fit(
                    run.method,
                    run.batches,
                    steps=run.plan.steps,
                    precision=precision_of(config.train.precision),
                    log_every=run.plan.log_every,
                    metrics_csv=out / METRICS_FILE,
                    progress=progress,
                    threads=config.train.threads,
                    callbacks=[*([] if run.knn is None else [run.knn]), run.state],
                    ranks=ranks,
                    resume_from=out / STATE_FILE if resume else None,
                )
            interruption.raise_if_stopped(method=config.method, out=out)
            interruption.catch()  # Lightning gave the signals back, and the checkpoint is still to be written
        elif run.knn is not None and ranks.is_first:
            run.knn.look(run.method.exported(), 0)
        seen = {} if run.knn is None else {k: v for k, v in run.knn.last.items() if k not in {"step", "seconds"}}
        checkpoint = out / CHECKPOINT_FILE
        if ranks.is_first:
            meta = meta_of_run(config, run.pictures, run.plan, seen)
            save_image_checkpoint(checkpoint, spec_of(config), run.method.exported(), meta)
            discard_state(out / STATE_FILE)
            write_curves(out)
    return ImageTrainResult(
        checkpoint,
        pictures=len(run.pictures),
        steps=run.plan.steps,
        unreadable=run.pictures.unreadable,
        last=last,
        knn=seen.get("knn_accuracy"),
        knn_before=knn_before(out) if run.plan.steps else None,
        held_out=config.knn.test is not None,
        method=run.method,
    )


@dataclass(frozen=True)
class _Prepared:
    """A run with all checks behind it.

    Attributes:
        batches: None where no step is taken: `random` may have fewer pictures than a batch.
        start: The step it goes on from.
    """

    method: ImageMethod
    batches: PictureBatches | None
    plan: RunPlan
    pictures: PictureSet
    knn: KnnCallback | None
    state: RunState
    start: int


def _prepare(
    config: ImageTrainConfig, out: Path, ranks: Ranks, interruption: Interruption, say: Say, *, resume: bool
) -> _Prepared:
    # First what is quickly told: a mistyped name should not wait for the data.
    method_class = image_method(config.method)
    check_before_loading(config, method_class)
    pl.seed_everything(config.train.seed, verbose=False)
    backbone = build_backbone(config.model.backbone(), config.size)
    say(f"reading the pictures of {config.data.path}")
    pictures = load(config, config.data.path, spill=out)
    check_loaded(config, method_class, pictures)
    plan = plan_of(config, pictures, ranks.world_size)
    identity = RunIdentity(config.method, config.digest(), pictures.digest())
    start = read_state(out / STATE_FILE, identity, ranks=ranks.world_size) if resume else 0
    share = {"rank": ranks.rank, "world_size": ranks.world_size}
    batches = None
    if plan.steps:
        batches = PictureBatches(pictures, plan.batch_size, config.train.seed, start=start, **share)
    # After the batches: what a method says of a batch that cannot be shared would not be the reason.
    options = config.options()
    method_class.check(options, plan, backbone)
    knn = _knn(config, pictures, out, plan)
    method = _built(method_class, backbone, options, plan)
    method.augmenter = Augmenter(
        config.augment, plan.mean, plan.std, config.train.seed, mode=config.train.augmentation, **share
    )
    method.to(memory_format=torch.channels_last)
    if ranks.world_size > 1:
        share_batch_norm(method)
    if found := classes_told(pictures, method_class):
        say(found)
    for line in method_class.advice(options, plan, backbone):
        say(line)
    say(opening(config, pictures, plan, start, ranks))
    state = RunState(
        out / STATE_FILE, identity, every=config.train.state_every, steps=plan.steps, interruption=interruption
    )
    return _Prepared(method, batches, plan, pictures, knn, state, start)


def _built(method: type[ImageMethod], backbone: Backbone, options: MethodOptions, plan: RunPlan) -> ImageMethod:
    try:
        return method(backbone, options, plan)
    except (RuntimeError, MemoryError, TypeError) as error:  # what torch says of a size that cannot be had
        raise ConfigError(f"method: {method.name} cannot be built so large: {first_line(error)}") from error


def _write_records(out: Path, config: ImageTrainConfig, pictures: PictureSet) -> None:
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


def _knn(config: ImageTrainConfig, pictures: PictureSet, out: Path, plan: RunPlan) -> KnnCallback | None:
    """What looks at the encoder during the run, where there are classes to look for."""
    knn = config.knn
    if len(set(pictures.labels.tolist()) - {UNLABELLED}) < 2:
        if knn.test is not None:
            raise ConfigError("knn.test: the training pictures are of no two classes, so none can be told by them")
        return None
    test = None if knn.test is None else load(config, knn.test)
    return KnnCallback(
        pictures,
        test,
        preprocess_of(config),
        out / EVALUATIONS_FILE,
        every_steps=0 if knn.every_epochs == 0 else max(1, round(knn.every_epochs * plan.steps_per_epoch)),
        steps=plan.steps,
        k=knn.k,
        temperature=knn.temperature,
        # Without a test set each voter is a question too, and all of them are embedded at every look.
        most=_MOST_VOTERS if test is not None else _MOST_LEFT_OUT,
        seed=config.train.seed,
    )
