"""Writes the report of a probe: the page, the numbers, the pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np

from twinlens.training.config import ConfigError
from twinlens.training.evaluation.curves import curves_of, draw_curves
from twinlens.training.evaluation.embedding_map import MapKind, draw_map, project
from twinlens.training.evaluation.labelled import stratified
from twinlens.training.evaluation.probe import Probed
from twinlens.training.evaluation.report import ReportParts, read_record, report_page

# More thumbnails than this cover each other.
_ON_A_MAP = 600
_MAP_TITLES: dict[MapKind, str] = {
    "pca": "Embedding map: the two directions of largest variance (PCA)",
    "tsne": "Embedding map: neighbours together (t-SNE)",
}


def write_report(probed: Probed, source: Path, out: Path, *, maps: bool, seed: int = 0) -> None:
    """Writes report.html and probe.json, and curves.png, map_pca.png and map_tsne.png as far as there is something.

    Args:
        probed: What was measured.
        source: The run folder, or the checkpoint in one, whose curves and configuration are shown.
        out: The folder; made where it is absent, and what has the same names in it is replaced.
        maps: Whether maps are drawn.
        seed: Of t-SNE, and of the pictures on the maps.

    Raises:
        ConfigError: if the folder cannot be written to.
        DataError: if the tables of the run are damaged.
    """
    run = source if source.is_dir() else source.parent
    curves = curves_of(run)
    curves_png = draw_curves({probed.result.name: curves}) if curves else None
    drawn = {}
    if maps and len(probed.test) >= 3:
        share = min(1.0, _ON_A_MAP / len(probed.test))
        rows = stratified(probed.test.labels, share, seed)
        for kind in get_args(MapKind):
            drawn[kind] = draw_map(project(probed.features[np.asarray(rows)], kind, seed=seed), probed.test.taken(rows))
    parts = ReportParts(
        curves_png=curves_png,
        maps={_MAP_TITLES[kind]: picture for kind, picture in drawn.items()},
        config=read_record(run, "config.json"),
        environment=read_record(run, "environment.json"),
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "probe.json").write_text(json.dumps(probed.result.summary(), indent=2) + "\n", encoding="utf-8")
        if curves_png is not None:
            (out / "curves.png").write_bytes(curves_png)
        for kind, picture in drawn.items():
            picture.save(out / f"map_{kind}.png")
        (out / "report.html").write_text(report_page(probed.result, parts), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write to {out}: {error.strerror or error}") from error
