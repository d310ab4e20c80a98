"""`twinlens export`: a checkpoint of our own training as a bundle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twinlens.encoders.manifest import Manifest
from twinlens.training.checkpoint import CheckpointError, load_checkpoint
from twinlens.training.export.bundle import About, publish_towers
from twinlens.training.export.destination import check_destination
from twinlens.training.export.errors import ExportError
from twinlens.training.export.open_clip_towers import open_clip_towers, scoring_rule


def export_checkpoint(
    checkpoint: Path,
    out: Path,
    name: str | None = None,
    version: str = "1",
    progress: Callable[[str], None] = lambda _: None,
) -> Manifest:
    """Publishes the towers of a checkpoint; exporting it twice gives the same `space_id`.

    Args:
        checkpoint: A file that `twinlens train` wrote.
        out: The bundle's folder.
        name: The bundle's name; by default the model's.
        version: The bundle's version.
        progress: Told, in one line, when a long stage begins.

    Raises:
        ExportError: if the checkpoint cannot be read, a tower cannot be exported, or its graph does not agree.
        BundleError: if `out` holds another bundle.
    """
    check_destination(out)
    try:
        spec, model, meta = load_checkpoint(checkpoint)
    except CheckpointError as error:
        raise ExportError(str(error)) from error
    image, text = open_clip_towers(model, spec.preprocess, spec.text, spec.tokenizer_json, spec.model_cfg)
    about = About(
        name=name or spec.name,
        version=version,
        scoring=scoring_rule(model),
        lineage=meta.lineage,
        metrics=meta.metrics,
        description=f"{spec.name}, {meta.step} training steps",
    )
    return publish_towers(image, text, about, out, progress)
