"""One training run of a dual encoder: from a configuration to a run folder with a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from twinlens.training.checkpoint import save_checkpoint
from twinlens.training.clip_preparation import METHOD, PreparedClip, prepare_clip
from twinlens.training.clip_result import TrainResult
from twinlens.training.config import TrainConfig, one_line
from twinlens.training.config_layers import with_settings
from twinlens.training.data.stream_source import StreamSource
from twinlens.training.errors import ConfigError
from twinlens.training.evaluation.curves import write_curves
from twinlens.training.event_files import event_files
from twinlens.training.interruption import Interruption
from twinlens.training.loop import fit
from twinlens.training.methods.clip import Clip
from twinlens.training.precision import precision_of
from twinlens.training.progress import Report, Say, both, silent, silent_report
from twinlens.training.ranks import Ranks, launched_ranks
from twinlens.training.run_files import (
    BEST_FILE,
    CHECKPOINT_FILE,
    CONFIG_FILE,
    EVALUATIONS_FILE,
    INTERPOLATION_FILE,
    METRICS_FILE,
    STATE_FILE,
    TUNED_FILE,
    UNAVERAGED_FILE,
)
from twinlens.training.run_folder import run_folder
from twinlens.training.run_records import recorded_config
from twinlens.training.run_state import RunState, discard_state
from twinlens.training.step_guard import StepGuard
from twinlens.training.validation_callback import ValidationCallback


def train(config: TrainConfig, out: Path, progress: Report, *, resume: bool = False, say: Say = silent) -> TrainResult:
    """Trains a dual encoder and writes a run folder.

    It holds config.json, environment.json, data.json, metrics.csv, evaluations.csv and best.pt (where something is
    validated), curves.png, checkpoint.pt, unaveraged.pt (where that holds an average), tuned.pt and interpolation.csv
    (where it holds an interpolation) and, while the run is under way, state.pt.

    The same configuration on the same machine gives the same weights, also where the run was interrupted and resumed.
    Processes that `torchrun` started share each batch; all take the same steps, whatever the data, and the first one
    writes.

    Args:
        config: What to train on what.
        out: The run folder; must be new or empty, or to be resumed.
        progress: Called with the step and the named values of each report, in the first process.
        resume: Go on from the state in `out`, which an interrupted run of the same configuration left there.
        say: Told in a line what is done with the data, once it is read.

    Raises:
        ConfigError: if the run folder is in use, holds nothing to resume or another run, or the configuration
            contradicts itself.
        DataError: if the data cannot be trained on.
        CheckpointError: if the checkpoint to start from cannot be used, the new one or the state not be written, or the
            state not be gone on from. What was written before stays.
        MiningError: if the manifest cannot be read.
        TrainingError: if too many steps had to be skipped, or one does not fit into memory.
        RunInterrupted: if SIGINT or SIGTERM came during the run; its state is written.
    """
    ranks = launched_ranks()
    with (
        run_folder(out, config.model_dump(mode="json"), resume=resume, first=ranks.is_first),
        Interruption(ranks) as interruption,
    ):
        run = prepare_clip(config, out, ranks, say if ranks.is_first else silent, resume=resume)
        try:
            told = _fit(run, config, out, ranks, interruption, progress)
        finally:
            if isinstance(run.raw, StreamSource):
                run.raw.close()
        interruption.raise_if_stopped(method=METHOD, out=out)
        interruption.catch()  # Lightning gave the signals back, and the checkpoint is still to be written
        chosen: dict[str, float] = {}
        if ranks.is_first:
            chosen = _save(run, config, out, told.validated)
            discard_state(out / STATE_FILE)
            write_curves(out)
    return TrainResult(
        out / CHECKPOINT_FILE,
        config.train.steps,
        len(run.raw),
        run.raw.unreadable,
        0 if run.mined is None else run.mined.unknown_rows,
        told.last,
        told.best,
        chosen,
    )


@dataclass(frozen=True)
class _Told:
    """What the loop and what is validated said: the last reports, and the best."""

    last: dict[str, float]
    validated: dict[str, float]
    best: dict[str, float]


def _fit(
    run: PreparedClip, config: TrainConfig, out: Path, ranks: Ranks, interruption: Interruption, progress: Report
) -> _Told:
    settings = config.train
    state = out / STATE_FILE
    events = settings.tensorboard and ranks.is_first
    with event_files(out, run.first_step) if events else nullcontext(silent_report) as also:
        looking = _looking(run, config, out, progress, also)
        last = fit(
            run.method,
            run.batches,
            steps=settings.steps,
            precision=precision_of(settings.precision),
            log_every=settings.log_every,
            metrics_csv=out / METRICS_FILE,
            progress=both(progress, also),
            threads=settings.threads,
            guard=StepGuard(max_skipped=settings.max_skipped, max_gradient_norm=settings.max_gradient_norm),
            callbacks=[
                run.locks,
                *([] if looking is None else [looking]),
                RunState(
                    state, run.identity, every=settings.state_every, steps=settings.steps, interruption=interruption
                ),
            ],
            ranks=ranks,
            resume_from=state if run.first_step else None,
        )
    return _Told(last, {}, {}) if looking is None else _Told(last, looking.last, looking.best)


def _save(run: PreparedClip, config: TrainConfig, out: Path, validated: dict[str, float]) -> dict[str, float]:
    """Last the file by which a run is known to have ended.

    Returns:
        The share of the trained weights in it and what it is worth; empty where it holds them alone.
    """
    steps = config.train.steps
    if run.method.average is not None:
        save_checkpoint(out / UNAVERAGED_FILE, run.spec, run.method.towers.model, run.meta(steps, {}))
    chosen: dict[str, float] = {}
    if run.ending is not None:
        save_checkpoint(out / TUNED_FILE, run.spec, run.method.exported(), run.meta(steps, validated))
        chosen = validated = run.ending(run.method, out / INTERPOLATION_FILE)
    save_checkpoint(out / CHECKPOINT_FILE, run.spec, run.method.exported(), run.meta(steps, validated))
    return chosen


def _looking(
    run: PreparedClip, config: TrainConfig, out: Path, progress: Report, events: Report
) -> ValidationCallback | None:
    if run.validation is None:
        return None
    shown = {run.validation.best_by, "forgetting_text_to_image_r1", "forgetting_top_1"}

    def told(step: int, measures: dict[str, float]) -> None:
        # A dozen of them do not fit into a line.
        progress(step, {name: value for name, value in measures.items() if name in shown})
        events(step, measures)

    def save_best(method: Clip, row: dict[str, float]) -> None:
        save_checkpoint(out / BEST_FILE, run.spec, method.exported(), run.meta(int(row["step"]), row))

    return ValidationCallback(
        run.validation, out / EVALUATIONS_FILE, steps=config.train.steps, save_best=save_best, told=told
    )


def config_of_run(out: Path, settings: Sequence[str] = ()) -> TrainConfig:
    """The configuration of the run in a folder.

    Args:
        out: The folder.
        settings: Single values over it; see `with_settings`.

    Raises:
        ConfigError: if there is none, it cannot be read, or it is a run of another method.
    """
    content = recorded_config(out)
    if "method" in content:
        raise ConfigError(f"{out} is a run of {content['method']}; it cannot go on as clip")
    try:
        return TrainConfig.model_validate(with_settings(content, settings))
    except ValidationError as error:
        raise ConfigError(f"{out / CONFIG_FILE}: {one_line(error, TrainConfig)}") from None
