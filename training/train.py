"""One training run: from a configuration to a run folder with a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from twinlens.encoders.manifest import Lineage, PreprocessSpec
from twinlens.training.checkpoint import CheckpointMeta, save_checkpoint
from twinlens.training.config import CaptionsData, ConfigError, ScenesData, TrainConfig
from twinlens.training.data.batches import HardShare, PairBatches
from twinlens.training.data.captions import CaptionColumns, read_captions
from twinlens.training.data.mined import MinedTable, tie
from twinlens.training.data.pairs import Pairs, RawPairs, from_captions, from_scenes, tokenise
from twinlens.training.data.scenes import SMALLEST, generate
from twinlens.training.loop import fit
from twinlens.training.methods.clip import Clip
from twinlens.training.mining.manifest import read_manifest
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.optimiser import Schedule
from twinlens.training.progress import Report
from twinlens.training.run_records import PACKAGES, write_records
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
        lines = []
        if self.unreadable:
            first, reason = next(iter(self.unreadable.items()))
            lines.append(f"left out {len(self.unreadable)} unreadable picture(s); the first is {first}: {reason}")
        if self.unknown_mined_rows:
            lines.append(f"left out {self.unknown_mined_rows} mined row(s) that name no pair of the data")
        return lines


def train(config: TrainConfig, out: Path, progress: Report) -> TrainResult:
    """Trains a dual encoder and writes `out`: config.json, environment.json, data.json, metrics.csv, checkpoint.pt.

    The same configuration on the same machine gives the same weights. Resuming an interrupted run is not supported
    yet: start it anew, or go on from its checkpoint as a run of its own.

    Args:
        config: What to train on what.
        out: The run folder; must be new or empty.
        progress: Called with the step and the named values of each report.

    Raises:
        ConfigError: if the run folder is in use or the configuration contradicts itself.
        DataError: if the data cannot be trained on.
        CheckpointError: if the checkpoint to start from cannot be used, or the new one not be written.
        MiningError: if the manifest cannot be read.
        TrainingError: if the loss is no longer finite.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is not an empty folder; name a new one for the run")
    pl.seed_everything(config.train.seed, verbose=False)
    start = start_of(config.model)
    mined = None if config.hard_negatives is None else read_manifest(config.hard_negatives.manifest)
    out.mkdir(parents=True, exist_ok=True)
    raw = _load(config, start.preprocess, out)
    spec, model = start.build(raw.captions)
    pairs = tokenise(raw, spec.tokenizer_json, spec.text)
    table = None if mined is None else tie(mined, pairs)
    batches = _batches(config, pairs, table)
    unknown = 0 if table is None else table.unknown_rows
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

    run = config.train
    method = Clip(
        DualEncoder(model, spec.preprocess.mean, spec.preprocess.std),
        learning_rate=run.learning_rate,
        weight_decay=run.weight_decay,
        schedule=Schedule(run.steps, min(run.warmup_steps, run.steps)),
        hard_weight=1.0 if config.hard_negatives is None else config.hard_negatives.weight,
    )
    last = fit(
        method,
        batches,
        steps=run.steps,
        precision=run.precision,
        log_every=run.log_every,
        metrics_csv=out / "metrics.csv",
        progress=progress,
        threads=run.threads,
    )
    checkpoint = out / "checkpoint.pt"
    lineage = Lineage(
        method="clip",
        config_sha256=config.digest(),
        data_sha256=raw.digest(),
        parent_space_id=mined.space_id if mined is not None and isinstance(start, Parent) else "",
        packages=versions(PACKAGES),
    )
    save_checkpoint(checkpoint, spec, method.exported(), CheckpointMeta(start.step + run.steps, lineage))
    return TrainResult(checkpoint, run.steps, len(pairs), raw.unreadable, unknown, last)


def _load(config: TrainConfig, preprocess: PreprocessSpec, out: Path) -> RawPairs:
    data = config.data
    if isinstance(data, ScenesData):
        if preprocess.size < SMALLEST:
            raise ConfigError(f"scenes need an image_size of at least {SMALLEST}, not {preprocess.size}")
        return from_scenes(list(generate(data.count, data.seed, preprocess.size, start=data.start)))
    assert isinstance(data, CaptionsData)  # noqa: S101 - for the type checker
    columns = CaptionColumns(data.image_column, data.caption_column, data.id_column)
    rows = read_captions(data.path, columns, images=data.images, limit=data.limit)
    return from_captions(
        rows,
        preprocess,
        max_unreadable_share=data.max_unreadable_share,
        root=data.images or data.path.parent,
        spill=out,
    )


def _batches(config: TrainConfig, pairs: Pairs, table: MinedTable | None) -> PairBatches:
    hard = config.hard_negatives
    share = None if hard is None else HardShare(hard.texts_per_anchor, hard.images_per_anchor, hard.pairs_per_anchor)
    return PairBatches(pairs, config.train.batch_size, config.train.seed, mined=table, share=share)
