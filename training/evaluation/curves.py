"""Learning curves as pictures, from the tables that runs leave behind."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from twinlens.training.csv_rows import read_columns
from twinlens.training.errors import CheckpointError
from twinlens.training.evaluation.embedding_map import COLOURS
from twinlens.training.run_files import CURVES_FILE, EVALUATIONS_FILE, METRICS_FILE

# The tables of a run folder, in the order in which their columns are drawn.
TABLES = (METRICS_FILE, EVALUATIONS_FILE)
_NO_CURVES = {"step", "seconds", "samples_per_s", "data_wait"}
# Counts of what seldom happens: no panel for a flat line at the bottom.
_CURVES_IF_ANY = {"skipped"}
_LINES = ("-", "--", ":")


@dataclass(frozen=True)
class Curve:
    """One measure of one run.

    Attributes:
        x: Steps, or seconds.
        y: Values; what is not finite leaves a gap.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]


def curves_of(run: Path, along: str = "step") -> dict[str, Curve]:
    """Every measure in a run's tables by its name.

    Args:
        run: A run folder; tables that it lacks are passed over.
        along: The column of x: `step` or `seconds`.

    Raises:
        DataError: if a table is no table of numbers.
    """
    found: dict[str, Curve] = {}
    for table in TABLES:
        if not (run / table).is_file():
            continue
        columns = read_columns(run / table)
        x = tuple(columns.get(along, ()))
        found |= {name: Curve(x, tuple(y)) for name, y in columns.items() if x and _is_drawn(name, y)}
    return found


def _is_drawn(name: str, values: Sequence[float]) -> bool:
    return name not in _NO_CURVES and (name not in _CURVES_IF_ANY or any(values))


def write_curves(run: Path) -> None:
    """Draws what is in a run's tables into its curves.png; nothing where there are no rows.

    Raises:
        DataError: if a table is no table of numbers.
        CheckpointError: if the picture cannot be written; no part of it is left.
    """
    curves = curves_of(run)
    if not curves:
        return
    path = run / CURVES_FILE
    try:
        path.write_bytes(draw_curves({run.name: curves}))
    except OSError as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}; the checkpoint is written") from error


def draw_curves(
    runs: Mapping[str, Mapping[str, Curve]], measures: Sequence[str] | None = None, *, along: str = "step"
) -> bytes:
    """One panel a measure, one line a run.

    Args:
        runs: A run's name to its curves.
        measures: Which ones, in this order; None: all that any run has.
        along: What x is, for the axis.

    Returns:
        A PNG file.

    Raises:
        ValueError: if no run has any of the measures.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - half a second, and only here
    from matplotlib.figure import Figure  # noqa: PLC0415

    known = list(dict.fromkeys(name for curves in runs.values() for name in curves))
    wanted = known if measures is None else [name for name in measures if name in known]
    if not wanted:
        raise ValueError("there is nothing to draw")
    columns = min(3, len(wanted))
    rows = math.ceil(len(wanted) / columns)
    figure = Figure(figsize=(4.4 * columns, 3.0 * rows + (0.5 if len(runs) > 1 else 0)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, measure in zip(grid.flat, wanted, strict=False):
        for index, (name, curves) in enumerate(runs.items()):
            if measure in curves:
                curve = curves[measure]
                colour, line = COLOURS[index % len(COLOURS)], _LINES[index // len(COLOURS) % len(_LINES)]
                marker = "o" if len(curve.x) == 1 else None
                axes.plot(curve.x, curve.y, color=colour, linestyle=line, linewidth=1.4, label=name, marker=marker)
        axes.set_title(measure.replace("_", " "), fontsize=10)
        axes.set_xlabel(along, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25)
    for axes in list(grid.flat)[len(wanted) :]:
        axes.set_axis_off()
    if len(runs) > 1:
        drawn = {
            label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=min(7, len(drawn)), fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()
