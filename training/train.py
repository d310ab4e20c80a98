"""One training run of a dual encoder: from a configuration to a run folder with a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pydantic import ValidationError

from twinlens.encoders.manifest import Lineage, PreprocessSpec
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, save_checkpoint
from twinlens.training.clip_result import TrainResult
from twinlens.training.compiler import check_compiler
from twinlens.training.config import TrainConfig, one_line
from twinlens.training.config_layers import with_settings
from twinlens.training.data.batches import PairBatches
from twinlens.training.data.hard_share import hard_share_of
from twinlens.training.data.mined import MinedTable, tie
from twinlens.training.data.pair_sources import load_pairs
from twinlens.training.data.pairs import Pairs, RawPairs, tokenise
from twinlens.training.data.stream_source import StreamSource
from twinlens.training.data.streamed_pairs import StreamedPairs
from twinlens.training.errors import ConfigError
from twinlens.training.evaluation.curves import write_curves
from twinlens.training.event_files import check_event_files, event_files
from twinlens.training.interruption import Interruption
from twinlens.training.loop import fit
from twinlens.training.losses.pair_loss import pair_loss_of, starting_scale
from twinlens.training.methods.clip import Clip
from twinlens.training.mining.manifest import MinedNegatives, read_manifest
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.modules.global_batch_norm import share_batch_norm
from twinlens.training.opening_line import opening_line
from twinlens.training.optimiser import Schedule
from twinlens.training.pair_augment import stored_preprocess, train_views
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
from twinlens.training.run_folder import cut_tables, run_folder
from twinlens.training.run_records import PACKAGES, recorded_config, write_records
from twinlens.training.run_state import RunIdentity, RunState, discard_state, read_state
from twinlens.training.sections.data import ShardsData, balance_power
from twinlens.training.start import Parent, Scratch, start_of
from twinlens.training.step_guard import StepGuard
from twinlens.training.tuning.locked_features import known_features, with_features
from twinlens.training.tuning.locks import Locks
from twinlens.training.tuning.prepare import prepare
from twinlens.training.tuning.rates import learning_rates
from twinlens.training.validation import Ending, HeldOut, check_validation, held_out, measures_on
from twinlens.training.validation_callback import Validation, ValidationCallback
from twinlens.training.versions import versions

_METHOD = "clip"


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
        run = _prepare(config, out, ranks, say if ranks.is_first else silent, resume=resume)
        try:
            told = _fit(run, config, out, ranks, interruption, progress)
        finally:
            if isinstance(run.raw, StreamSource):
                run.raw.close()
        interruption.raise_if_stopped(method=_METHOD, out=out)
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
class _Prepared:
    """A run with all checks behind it.

    Attributes:
        pairs: None where they are streamed.
        held: What it is measured on; None: nothing.
        ending: What mixes its weights with those of its parent at the end; None: nothing.
        first_step: The step it goes on from.
        steps_before: Of earlier runs behind the weights that it started from.
    """

    spec: DualEncoderSpec
    method: Clip
    locks: Locks
    batches: PairBatches | StreamedPairs
    raw: RawPairs | StreamSource
    pairs: Pairs | None
    mined: MinedTable | None
    held: HeldOut | None
    validation: Validation | None
    ending: Ending | None
    lineage: Lineage
    first_step: int
    steps_before: int

    def meta(self, step: int, metrics: dict[str, float]) -> CheckpointMeta:
        """Of a checkpoint after so many steps of this run."""
        measured = {name: value for name, value in metrics.items() if name not in {"step", "seconds"}}
        return CheckpointMeta(self.steps_before + step, self.lineage, measured)


def _prepare(config: TrainConfig, out: Path, ranks: Ranks, say: Say, *, resume: bool) -> _Prepared:
    run = config.train
    # First what is quickly told: a mistake should not wait for the data.
    if run.tensorboard:
        check_event_files()
    if run.compile:
        check_compiler("cuda" if torch.cuda.is_available() else "cpu")
    if isinstance(config.data, ShardsData) and config.data.streaming and config.hard_negatives is not None:
        raise ConfigError("hard_negatives need all pairs in sight: leave them out, or set data.streaming = false")
    check_validation(config)
    pl.seed_everything(run.seed, verbose=False)
    start = start_of(config.model)
    hard = config.hard_negatives
    mined = None if hard is None or hard.manifest is None else read_manifest(hard.manifest)
    raw = _read(config, stored_preprocess(config.augment, start.preprocess), out, ranks)
    held = None
    if config.validation is not None:
        raw, held = held_out(config.validation, raw, start.preprocess, spill=out)
    log_scale, bias = starting_scale(config.loss)
    spec, model = start.build(raw.captions, log_scale=log_scale, bias=bias)
    spec = prepare(spec, model, config.tuning)
    locks = Locks(model, config.tuning, steps=run.steps, ranks=ranks)
    identity = RunIdentity(_METHOD, config.digest(), raw.digest())
    first_step = read_state(out / STATE_FILE, identity, ranks=ranks.world_size) if resume else 0
    method = _method(config, spec, model)
    known = known_features(config.tuning, augmented=config.augment is not None)
    measures = None
    if held is not None and config.validation is not None:
        measures = measures_on(held, config.validation, spec, method.towers, known)
    batches, pairs, table = _batches(
        config, raw, spec, mined, first_step, ranks, lambda pairs: with_features(pairs, method.towers, known)
    )
    method.augmenter = train_views(config.augment, spec.preprocess, run.seed, ranks)
    if ranks.world_size > 1:
        share_batch_norm(method)
    say(
        opening_line(
            _METHOD,
            trained_on=raw.told(),
            samples=None if pairs is None else len(pairs),
            steps=run.steps,
            batch_size=run.batch_size,
            precision=precision_of(run.precision),
            start=first_step,
            threads=run.threads,
            ranks=ranks,
        )
    )
    lineage = Lineage(
        method=_METHOD,
        config_sha256=config.digest(),
        data_sha256=raw.digest(),
        parent_space_id=_parent_space(start, mined),
        packages=versions(PACKAGES),
    )
    validation = ending = None
    if measures is not None and config.validation is not None:
        validation = measures.validation(config.validation.every)
        ending = measures.ending(method, config.validation)
    prepared = _Prepared(
        spec,
        method,
        locks,
        batches,
        raw,
        pairs,
        table,
        held,
        validation,
        ending,
        lineage,
        first_step,
        start.step,
    )
    if ranks.is_first:
        _write_tables(prepared, config, out, resume=resume)
    return prepared


def _method(config: TrainConfig, spec: DualEncoderSpec, model: torch.nn.Module) -> Clip:
    run = config.train
    method = Clip(
        DualEncoder(model, spec.preprocess.mean, spec.preprocess.std),
        pair_loss_of(config.loss),
        learning_rate=run.learning_rate,
        weight_decay=run.weight_decay,
        schedule=Schedule(run.steps, min(run.warmup_steps, run.steps)),
        hard_weight=1.0 if config.hard_negatives is None else config.hard_negatives.weight,
        chunk_size=run.chunk_size,
        ema_decay=run.ema_decay,
    )
    method.rates = learning_rates(model, config.tuning)
    if run.compile:
        method.compile_towers()
    return method


def _write_tables(run: _Prepared, config: TrainConfig, out: Path, *, resume: bool) -> None:
    """The records of a new run; of one that goes on, the tables without what came after its state."""
    if resume:
        cut_tables(out, run.first_step)
        return
    unknown = 0 if run.mined is None else run.mined.unknown_rows
    write_records(out, config=config.model_dump(mode="json"), data=_record(run.raw, run.pairs, unknown, run.held))


def _record(
    raw: RawPairs | StreamSource, pairs: Pairs | None, unknown_mined_rows: int, held: HeldOut | None
) -> dict[str, Any]:
    held_out = {} if held is None else {"held_out": held.described()}
    if isinstance(raw, StreamSource) or pairs is None:
        return {"sha256": raw.digest(), "shards": list(raw.names) if isinstance(raw, StreamSource) else [], **held_out}
    return {
        "sha256": raw.digest(),
        "pairs": len(pairs),
        "pictures": len(set(raw.image_digests)),
        "truncated_captions": pairs.truncated,
        "unreadable": raw.unreadable,
        "unknown_mined_rows": unknown_mined_rows,
        **held_out,
    }


@dataclass(frozen=True)
class _Told:
    """What the loop and what is validated said: the last reports, and the best."""

    last: dict[str, float]
    validated: dict[str, float]
    best: dict[str, float]


def _fit(
    run: _Prepared, config: TrainConfig, out: Path, ranks: Ranks, interruption: Interruption, progress: Report
) -> _Told:
    settings = config.train
    state = out / STATE_FILE
    identity = RunIdentity(_METHOD, run.lineage.config_sha256, run.lineage.data_sha256)
    events = settings.tensorboard and ranks.is_first
    with event_files(out, run.first_step) if events else nullcontext(silent_report) as also:
        looking = _looking(run, config, out, both(progress, also))
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
                RunState(state, identity, every=settings.state_every, steps=settings.steps, interruption=interruption),
            ],
            ranks=ranks,
            resume_from=state if run.first_step else None,
        )
    return _Told(last, {}, {}) if looking is None else _Told(last, looking.last, looking.best)


def _save(run: _Prepared, config: TrainConfig, out: Path, validated: dict[str, float]) -> dict[str, float]:
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


def _looking(run: _Prepared, config: TrainConfig, out: Path, told: Report) -> ValidationCallback | None:
    if run.validation is None:
        return None

    def save_best(method: Clip, row: dict[str, float]) -> None:
        save_checkpoint(out / BEST_FILE, run.spec, method.exported(), run.meta(int(row["step"]), row))

    return ValidationCallback(
        run.validation, out / EVALUATIONS_FILE, steps=config.train.steps, save_best=save_best, told=told
    )


def _parent_space(start: Scratch | Parent, mined: MinedNegatives | None) -> str:
    """Of the vectors that the run started from, where it started from a checkpoint and that is known."""
    if not isinstance(start, Parent):
        return ""
    return start.space_id or ("" if mined is None else mined.space_id)


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


def _read(config: TrainConfig, preprocess: PreprocessSpec, out: Path, ranks: Ranks) -> RawPairs | StreamSource:
    data = config.data
    if not isinstance(data, ShardsData) or not data.streaming:
        return load_pairs(data, preprocess, spill=out)
    return StreamSource(data, preprocess, seed=config.train.seed, out=out, ranks=ranks)


def _batches(
    config: TrainConfig,
    raw: RawPairs | StreamSource,
    spec: DualEncoderSpec,
    mined: MinedNegatives | None,
    start: int,
    ranks: Ranks,
    ready: Callable[[Pairs], Pairs],
) -> tuple[PairBatches | StreamedPairs, Pairs | None, MinedTable | None]:
    """The batches from number `start` on, and what they are cut from where that is all in sight."""
    if isinstance(raw, StreamSource):
        return raw.batches(spec.tokenizer_json, spec.text, config.train.batch_size, start=start), None, None
    pairs = ready(tokenise(raw, spec.tokenizer_json, spec.text))
    table = None if mined is None else tie(mined, pairs)
    batches = PairBatches(
        pairs,
        config.train.batch_size,
        config.train.seed,
        mined=table,
        share=hard_share_of(config.hard_negatives, config.train.steps),
        start=start,
        rank=ranks.rank,
        world_size=ranks.world_size,
        balance=balance_power(config.data),
    )
    return batches, pairs, table
