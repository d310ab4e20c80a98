"""The report of a run: one HTML page that needs nothing beside it."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from twinlens.training.data.picture_set import left_out
from twinlens.training.evaluation.probe import ProbeResult

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
       color: #1b1b1b; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; background: #fff; }
pre { background: #f4f4f4; padding: .8rem; overflow-x: auto; }
meter { width: 10rem; }
"""


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
    body = [f"<h1>{html.escape(title)}</h1>", "<h2>Measures</h2>", _table(measures(result))]
    body += [f"<p>{html.escape(line)}</p>" for line in left_out(result.unreadable)]
    body += ["<h2>Nearest neighbours by class</h2>", _per_class(result.per_class)]
    if parts.curves_png is not None:
        body += ["<h2>Learning curves</h2>", _image(parts.curves_png, "learning curves")]
    for name, picture in (parts.maps or {}).items():
        buffer = io.BytesIO()
        picture.save(buffer, format="PNG")
        body += [f"<h2>{html.escape(name)}</h2>", _image(buffer.getvalue(), name)]
    for name, record in (("Configuration", parts.config), ("Environment", parts.environment)):
        if record is not None:
            body += [f"<h2>{name}</h2>", f"<pre>{html.escape(json.dumps(record, indent=2, sort_keys=True))}</pre>"]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


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


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>"


def _per_class(shares: Mapping[str, float]) -> str:
    cells = "".join(
        f'<tr><td>{html.escape(name)}</td><td><meter value="{share:.4f}"></meter></td>'
        f'<td class="number">{share:.3f}</td></tr>'
        for name, share in sorted(shares.items(), key=lambda item: -item[1])
    )
    return f"<table>{cells}</table>"


def _image(png: bytes, name: str) -> str:
    return f'<img alt="{html.escape(name)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
