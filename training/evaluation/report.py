"""The report of a run: one HTML page that needs nothing beside it."""

from __future__ import annotations

import html
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from twinlens.training.data.picture_set import left_out
from twinlens.training.evaluation.page_parts import facts_table, page, picture, shares_table
from twinlens.training.evaluation.probe import ProbeResult


@dataclass(frozen=True)
class ReportParts:
    """What a page shows besides the measures.

    Attributes:
        curves_png: Learning curves; None: the checkpoint came without its run.
        maps: What a map shows to the map.
        config: Of the run; None: unknown.
        environment: Of the run.
    """

    curves_png: bytes | None = None
    maps: Mapping[str, Image.Image] | None = None
    config: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None


def report_page(result: ProbeResult, parts: ReportParts) -> str:
    """The page.

    Args:
        result: What was measured.
        parts: What else there is to show.
    """
    title = f"{result.name}: {result.method}, {result.steps:,} steps"
    body = [f"<h1>{html.escape(title)}</h1>", "<h2>Measures</h2>", facts_table(measures(result))]
    body += [f"<p>{html.escape(line)}</p>" for line in left_out(result.unreadable)]
    body += ["<h2>Nearest neighbours by class</h2>", shares_table(result.per_class)]
    if parts.curves_png is not None:
        body += ["<h2>Learning curves</h2>", picture(parts.curves_png, "learning curves")]
    for name, drawn in (parts.maps or {}).items():
        buffer = io.BytesIO()
        drawn.save(buffer, format="PNG")
        body += [f"<h2>{html.escape(name)}</h2>", picture(buffer.getvalue(), name)]
    for name, record in (("Configuration", parts.config), ("Environment", parts.environment)):
        if record is not None:
            body += [f"<h2>{name}</h2>", f"<pre>{html.escape(json.dumps(record, indent=2, sort_keys=True))}</pre>"]
    return page(title, body)


def read_record(run: Path, name: str) -> Mapping[str, Any] | None:
    """A JSON object of a run folder; None where it is absent or something else."""
    try:
        record = json.loads((run / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def measures(result: ProbeResult) -> list[tuple[str, str]]:
    """What a person looks at: name and value, the most telling first."""
    return [
        ("kNN accuracy", f"{result.knn:.3f} (with fresh weights {result.knn_untrained:.3f})"),
        ("linear probe", f"{result.linear:.3f} (training pictures {result.linear_train:.3f})"),
        *(
            (
                f"low-shot, {shot.share:.0%} = {shot.pictures} pictures",
                f"{shot.accuracy:.3f} (encoder frozen {shot.linear_accuracy:.3f})",
            )
            for shot in result.low_shot
        ),
        ("std of a feature", f"{result.feature_std:.4f} ({result.dimension**-0.5:.4f} is the best possible)"),
        ("effective rank", f"{result.feature_rank:.1f} of {result.dimension}"),
        ("chance", f"{1 / result.classes:.3f}"),
        ("pictures", f"{result.train_pictures:,} for training, {result.test_pictures:,} for the test"),
        ("checkpoint", str(result.checkpoint)),
    ]
