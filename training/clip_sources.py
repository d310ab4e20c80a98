"""All that a run of a dual encoder reads and its configuration only names."""

from __future__ import annotations

import hashlib
from pathlib import Path

from twinlens.encoders.bundle import sha256_of
from twinlens.training.config import TrainConfig
from twinlens.training.run_checkpoint import checkpoint_of
from twinlens.training.validation import HeldOut


def sources_digest(config: TrainConfig, data_sha256: str, held: HeldOut | None) -> str:
    """SHA-256 of the data, of what is held out, of mined negatives and of the checkpoints that a run starts from.

    A run that goes on needs them as they were: its hard negatives are drawn from the manifest, its parent is a part of
    the weights that it ends with, and what a locked tower makes of the data is computed once more.

    Args:
        config: Of the run.
        data_sha256: Of what is trained on.
        held: What it is measured on; None: nothing.
    """
    looked_at = () if held is None else (held.pairs, held.forgetting)
    parts = [data_sha256, *("" if pairs is None else pairs.digest() for pairs in looked_at)]
    parts += ["" if file is None else sha256_of(file) for file in _files(config)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _files(config: TrainConfig) -> list[Path | None]:
    model, hard = config.model, config.hard_negatives
    checkpoints = (model.from_checkpoint, model.image_checkpoint, model.text_checkpoint)
    return [
        None if hard is None else hard.manifest,
        *(None if source is None else checkpoint_of(source) for source in checkpoints),
    ]
