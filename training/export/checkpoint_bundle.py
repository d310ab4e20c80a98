"""`twinlens export`: a checkpoint of our own training as a bundle."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from twinlens.encoders.manifest import Manifest, ScoringRule
from twinlens.training.checkpoint import CheckpointMeta, dual_encoder_in, read_payload
from twinlens.training.errors import CheckpointError
from twinlens.training.export.backbone_tower import backbone_tower
from twinlens.training.export.bundle import About, publish_towers
from twinlens.training.export.destination import check_destination
from twinlens.training.export.dual_encoder_towers import dual_encoder_towers
from twinlens.training.export.errors import ExportError
from twinlens.training.export.open_clip_towers import scoring_rule
from twinlens.training.export.towers import ImageExport, TextExport
from twinlens.training.image_checkpoint import holds_image_encoder, image_encoder_in
from twinlens.training.run_checkpoint import checkpoint_of


def export_checkpoint(
    checkpoint: Path,
    out: Path,
    name: str | None = None,
    version: str = "1",
    progress: Callable[[str], None] = lambda _: None,
    *,
    with_checkpoint: bool = True,
) -> Manifest:
    """Publishes the towers of a checkpoint; exporting it twice gives the same `space_id`.

    The checkpoint goes along, so that training goes on from the bundle. An image encoder alone becomes an image-only
    bundle of its backbone's features.

    Args:
        checkpoint: A file that `twinlens train` wrote, or its run folder.
        out: The bundle's folder.
        name: The bundle's name; by default the model's.
        version: The bundle's version.
        progress: Told, in one line, when a long stage begins.
        with_checkpoint: Whether the bundle keeps the checkpoint.

    Raises:
        ExportError: if the checkpoint cannot be read, a tower cannot be exported, or its graph does not agree.
        BundleError: if `out` holds another bundle.
    """
    check_destination(out)
    try:
        checkpoint = checkpoint_of(checkpoint)
        payload = read_payload(checkpoint)
        towers_of = _image_encoder if holds_image_encoder(payload, checkpoint) else _dual_encoder
        towers = towers_of(payload, checkpoint)
    except CheckpointError as error:
        raise ExportError(str(error)) from error
    about = About(
        name=name or towers.name,
        version=version,
        scoring=towers.scoring,
        lineage=towers.meta.lineage,
        metrics=towers.meta.metrics,
        description=f"{towers.name}, {towers.meta.step} training steps",
    )
    keep = partial(shutil.copyfile, checkpoint) if with_checkpoint else None
    return publish_towers(towers.image, towers.text, about, out, progress, keep=keep)


@dataclass(frozen=True)
class _Towers:
    image: ImageExport
    text: TextExport | None
    name: str
    meta: CheckpointMeta
    scoring: ScoringRule = field(default_factory=ScoringRule)


def _dual_encoder(payload: Mapping[str, Any], checkpoint: Path) -> _Towers:
    spec, model, meta = dual_encoder_in(payload, checkpoint)
    image, text = dual_encoder_towers(spec, model)
    return _Towers(image, text, spec.name, meta, scoring_rule(model))


def _image_encoder(payload: Mapping[str, Any], checkpoint: Path) -> _Towers:
    spec, backbone, meta = image_encoder_in(payload, checkpoint)
    return _Towers(backbone_tower(backbone, spec.preprocess), None, spec.name, meta)
