"""Writes the report of a probe: the page, the numbers, the pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from twinlens.training.data.errors import DataError
from twinlens.training.errors import ConfigError
from twinlens.training.evaluation.curves import Curve, curves_of, draw_curves
from twinlens.training.evaluation.embedding_map import MapKind, draw_map, project
from twinlens.training.evaluation.labelled import stratified
from twinlens.training.evaluation.probe import Probed
from twinlens.training.evaluation.report import ReportParts, read_record, report_page
from twinlens.training.run_files import CONFIG_FILE, CURVES_FILE, ENVIRONMENT_FILE

# More thumbnails than this cover each other.
_ON_A_MAP = 600
_FEWEST_ON_A_MAP = 3
_MAP_TITLES: dict[MapKind, str] = {
    "pca": "Embedding map: the two directions of largest variance (PCA)",
    "tsne": "Embedding map: neighbours together (t-SNE)",
}


@dataclass(frozen=True)
class LeftByRun:
    """What a run folder tells of the run besides its checkpoint; a checkpoint alone tells nothing.

    Attributes:
        curves: Measure to its learning curve.
        config: Of the run; None: unknown.
        environment: Of the run; None: unknown.
    """

    curves: Mapping[str, Curve]
    config: Mapping[str, Any] | None
    environment: Mapping[str, Any] | None


def read_run(source: Path) -> LeftByRun:
    """What lies in a run folder, or beside a checkpoint.

    Args:
        source: The folder, or the checkpoint.

    Raises:
        DataError: if the tables of the run are damaged.
    """
    run = source if source.is_dir() else source.parent
    return LeftByRun(curves_of(run), read_record(run, CONFIG_FILE), read_record(run, ENVIRONMENT_FILE))


def write_report(probed: Probed, left: LeftByRun, out: Path, *, maps: bool, seed: int = 0) -> None:
    """Writes report.html and probe.json; curves.png where there are curves; map_pca.png and map_tsne.png.

    Args:
        probed: What was measured.
        left: By the run of the checkpoint.
        out: The folder; made where it is absent, and what has the same names in it is replaced.
        maps: Whether maps are drawn.
        seed: Of t-SNE, and of the pictures on the maps.

    Raises:
        ConfigError: if the folder cannot be written to.
        DataError: if a map is wanted of fewer than three pictures.
    """
    curves_png = draw_curves({probed.result.name: left.curves}) if left.curves else None
    drawn = {}
    if maps:
        if len(probed.test) < _FEWEST_ON_A_MAP:
            raise DataError(f"a map needs at least {_FEWEST_ON_A_MAP} test pictures, found {len(probed.test)}")
        share = min(1.0, _ON_A_MAP / len(probed.test))
        rows = stratified(probed.test.labels, share, seed)
        for kind in get_args(MapKind):
            drawn[kind] = draw_map(project(probed.features[np.asarray(rows)], kind, seed=seed), probed.test.taken(rows))
    parts = ReportParts(
        curves_png=curves_png,
        maps={_MAP_TITLES[kind]: picture for kind, picture in drawn.items()},
        config=left.config,
        environment=left.environment,
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "probe.json").write_text(json.dumps(probed.result.summary(), indent=2) + "\n", encoding="utf-8")
        if curves_png is not None:
            (out / CURVES_FILE).write_bytes(curves_png)
        for kind, picture in drawn.items():
            picture.save(out / f"map_{kind}.png")
        (out / "report.html").write_text(report_page(probed.result, parts), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write to {out}: {error.strerror or error}") from error
