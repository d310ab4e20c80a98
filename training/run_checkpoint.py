"""The checkpoint that a person means by a run folder."""

from __future__ import annotations

from pathlib import Path

from twinlens.encoders.manifest import MANIFEST_NAME
from twinlens.training.errors import CheckpointError
from twinlens.training.run_files import CHECKPOINT_FILE, CONFIG_FILE, STATE_FILE


def checkpoint_of(source: Path) -> Path:
    """The checkpoint that a file or a run folder names.

    Raises:
        CheckpointError: if there is nothing, or the folder holds none; it says what it holds instead.
    """
    if not source.exists():
        raise CheckpointError(f"no checkpoint at {source}")
    if not source.is_dir():
        return source
    checkpoint = source / CHECKPOINT_FILE
    if checkpoint.is_file():
        return checkpoint
    if (source / MANIFEST_NAME).is_file():
        raise CheckpointError(f"{source} is a bundle; name the run that it was made of")
    if (source / STATE_FILE).is_file():
        raise CheckpointError(
            f"{source} holds no checkpoint yet: its run is under way, or was interrupted and ends with `train --resume`"
        )
    if (source / CONFIG_FILE).is_file():
        raise CheckpointError(
            f"{source} holds no checkpoint: its run is under way, or ended before one was written; then train anew"
        )
    raise CheckpointError(f"no checkpoint at {checkpoint}")
