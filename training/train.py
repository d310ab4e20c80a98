"""One training run: from a configuration to a run folder with a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pydantic import ValidationError

from twinlens.encoders.manifest import Lineage
from twinlens.training.checkpoint import CheckpointMeta, save_checkpoint
from twinlens.training.config import TrainConfig, one_line
from twinlens.training.config_layers import with_settings
from twinlens.training.data.batches import HardShare, PairBatches
from twinlens.training.data.mined import MinedTable, tie
from twinlens.training.data.pair_sources import load_pairs
from twinlens.training.data.pairs import Pairs, tokenise
from twinlens.training.data.picture_set import left_out
from twinlens.training.errors import ConfigError
from twinlens.training.interruption import Interruption
from twinlens.training.loop import fit
from twinlens.training.losses.pair_loss import pair_loss_of
from twinlens.training.methods.clip import Clip
from twinlens.training.mining.manifest import read_manifest
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.opening_line import opening_line
from twinlens.training.optimiser import Schedule
from twinlens.training.progress import Report, Say, silent
from twinlens.training.run_files import CHECKPOINT_FILE, CONFIG_FILE, METRICS_FILE, STATE_FILE
from twinlens.training.run_folder import cut_tables, run_folder
from twinlens.training.run_records import PACKAGES, recorded_config, write_records
from twinlens.training.run_state import RunIdentity, RunState, discard_state, read_state
from twinlens.training.sections.data import balance_power
from twinlens.training.start import Parent, start_of
from twinlens.training.versions import versions


@dataclass(frozen=True)
class TrainResult:
    """What a run left behind.

    Attributes:
        checkpoint: The file.
        steps: Of the optimiser.
        pairs: How many pairs it was trained on.
        unreadable: What was left out, and why.
        unknown_mined_rows: Rows of the hard-negative manifest that name no pair of the data.
        last: The last report of the loop.
    """

    checkpoint: Path
    steps: int
    pairs: int
    unreadable: dict[str, str]
    unknown_mined_rows: int
    last: dict[str, float]

    def summary(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "checkpoint": str(self.checkpoint),
            "pairs": self.pairs,
            "unreadable": self.unreadable,
            "unknown_mined_rows": self.unknown_mined_rows,
            "metrics": self.last,
        }

    def told(self) -> str:
        """In a few words."""
        return f"{self.steps} steps on {self.pairs:,} pairs"

    def warnings(self) -> list[str]:
        """What a person should know: what was left out, once, with the first of its kind."""
        lines = left_out(self.unreadable, "unreadable")
        if self.unknown_mined_rows:
            lines.append(f"left out {self.unknown_mined_rows} mined row(s) that name no pair of the data")
        return lines


def train(config: TrainConfig, out: Path, progress: Report, *, resume: bool = False, say: Say = silent) -> TrainResult:
    """Trains a dual encoder and writes `out`: config.json, environment.json, data.json, metrics.csv, checkpoint.pt.

    The same configuration on the same machine gives the same weights, also where the run was interrupted and resumed.
    While it is under way, the folder holds state.pt too.

    Args:
        config: What to train on what.
        out: The run folder; must be new or empty, or to be resumed.
        progress: Called with the step and the named values of each report.
        resume: Go on from the state in `out`, which an interrupted run of the same configuration left there.
        say: Told in a line what is done with the data, once it is read.

    Raises:
        ConfigError: if the run folder is in use, holds nothing to resume or another run, or the configuration
            contradicts itself.
        DataError: if the data cannot be trained on.
        CheckpointError: if the checkpoint to start from cannot be used, the new one or the state not be written, or the
            state not be gone on from.
        MiningError: if the manifest cannot be read.
        TrainingError: if the loss is no longer finite.
        RunInterrupted: if SIGINT or SIGTERM came during the run; its state is written.
    """
    with run_folder(out, config.model_dump(mode="json"), resume=resume), Interruption() as interruption:
        return _train(config, out, progress, say, interruption, resume=resume)


def _train(
    config: TrainConfig, out: Path, progress: Report, say: Say, interruption: Interruption, *, resume: bool
) -> TrainResult:
    pl.seed_everything(config.train.seed, verbose=False)
    start = start_of(config.model)
    mined = None if config.hard_negatives is None else read_manifest(config.hard_negatives.manifest)
    raw = load_pairs(config.data, start.preprocess, spill=out)
    spec, model = start.build(raw.captions)
    pairs = tokenise(raw, spec.tokenizer_json, spec.text)
    table = None if mined is None else tie(mined, pairs)
    run = config.train
    unknown = 0 if table is None else table.unknown_rows
    identity = RunIdentity("clip", config.digest(), raw.digest())
    first = read_state(out / STATE_FILE, identity) if resume else 0
    batches = _batches(config, pairs, table, first)
    if resume:
        cut_tables(out, first)
    else:
        write_records(
            out,
            config=config.model_dump(mode="json"),
            data={
                "sha256": raw.digest(),
                "pairs": len(pairs),
                "pictures": len(set(raw.image_digests)),
                "truncated_captions": pairs.truncated,
                "unreadable": raw.unreadable,
                "unknown_mined_rows": unknown,
            },
        )
    method = Clip(
        DualEncoder(model, spec.preprocess.mean, spec.preprocess.std),
        pair_loss_of(config.loss),
        learning_rate=run.learning_rate,
        weight_decay=run.weight_decay,
        schedule=Schedule(run.steps, min(run.warmup_steps, run.steps)),
        hard_weight=1.0 if config.hard_negatives is None else config.hard_negatives.weight,
    )
    say(
        opening_line(
            "clip",
            trained_on=f"{len(pairs):,} pairs",
            samples=len(pairs),
            steps=run.steps,
            batch_size=run.batch_size,
            precision=run.precision,
            start=first,
            threads=run.threads,
        )
    )
    last = fit(
        method,
        batches,
        steps=run.steps,
        precision=run.precision,
        log_every=run.log_every,
        metrics_csv=out / METRICS_FILE,
        progress=progress,
        threads=run.threads,
        callbacks=[
            RunState(out / STATE_FILE, identity, every=run.state_every, steps=run.steps, interruption=interruption)
        ],
        resume_from=out / STATE_FILE if resume else None,
    )
    interruption.raise_if_stopped(method="clip", out=out)
    interruption.catch()  # Lightning gave the signals back, and the checkpoint is still to be written
    checkpoint = out / CHECKPOINT_FILE
    lineage = Lineage(
        method="clip",
        config_sha256=config.digest(),
        data_sha256=raw.digest(),
        parent_space_id=mined.space_id if mined is not None and isinstance(start, Parent) else "",
        packages=versions(PACKAGES),
    )
    save_checkpoint(checkpoint, spec, method.exported(), CheckpointMeta(start.step + run.steps, lineage))
    discard_state(out / STATE_FILE)
    return TrainResult(checkpoint, run.steps, len(pairs), raw.unreadable, unknown, last)


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


def _batches(config: TrainConfig, pairs: Pairs, table: MinedTable | None, start: int) -> PairBatches:
    hard = config.hard_negatives
    share = None if hard is None else HardShare(hard.texts_per_anchor, hard.images_per_anchor, hard.pairs_per_anchor)
    return PairBatches(
        pairs,
        config.train.batch_size,
        config.train.seed,
        mined=table,
        share=share,
        start=start,
        balance=balance_power(config.data),
    )
