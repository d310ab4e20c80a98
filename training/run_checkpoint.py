"""The checkpoint that a person means by a run folder or a bundle."""

from __future__ import annotations

from pathlib import Path

from twinlens.encoders.bundle import read_manifest, sha256_of
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import MANIFEST_NAME, TRAINING_FILE, Manifest
from twinlens.training.errors import CheckpointError
from twinlens.training.run_files import CHECKPOINT_FILE, CONFIG_FILE, STATE_FILE


def checkpoint_of(source: Path) -> Path:
    """The checkpoint that a file, a run folder or a bundle names.

    Raises:
        CheckpointError: if there is nothing, or the folder holds none; it says what it holds instead. Or if a bundle's
            manifest is damaged, or its checkpoint is not the one that it lists.
    """
    if not source.exists():
        raise CheckpointError(f"no checkpoint at {source}")
    if not source.is_dir():
        return source
    if (source / MANIFEST_NAME).is_file():
        return _of_bundle(source)
    checkpoint = source / CHECKPOINT_FILE
    if checkpoint.is_file():
        return checkpoint
    if (source / STATE_FILE).is_file():
        raise CheckpointError(
            f"{source} holds no checkpoint yet: its run is under way, or was interrupted and ends with `train --resume`"
        )
    if (source / CONFIG_FILE).is_file():
        raise CheckpointError(
            f"{source} holds no checkpoint: its run is under way, or ended before one was written; then train anew"
        )
    raise CheckpointError(f"no checkpoint at {checkpoint}")


def space_of(source: Path) -> str:
    """The `space_id` of the bundle that `source` is; empty where it is none.

    Raises:
        CheckpointError: if the bundle's manifest is damaged.
    """
    return _manifest(source).space_id if (source / MANIFEST_NAME).is_file() else ""


def _of_bundle(bundle: Path) -> Path:
    checkpoint = bundle / TRAINING_FILE
    if not checkpoint.is_file():
        raise CheckpointError(
            f"{bundle} is a bundle without a checkpoint to train from: name the run that it was made of, or make the "
            "bundle anew in another folder (`twinlens export`, `pull` and `starter` keep the checkpoint)"
        )
    listed = {entry.path: entry.sha256 for entry in _manifest(bundle).files}
    if listed.get(TRAINING_FILE) != sha256_of(checkpoint):
        raise CheckpointError(f"{checkpoint} is not the checkpoint that the bundle lists: it was changed")
    return checkpoint


def _manifest(bundle: Path) -> Manifest:
    try:
        return read_manifest(bundle)
    except BundleError as error:
        raise CheckpointError(str(error)) from error
