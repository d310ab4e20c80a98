"""How figures grow with the number of vectors: slopes on a log-log plot, and what they come to beyond it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# What is fitted, and its unit.
FIGURES = {
    "p50_ms": "engine p50 in ms, 1 caller",
    "per_s": "engine searches a second, 8 callers",
    "own_mib": "memory of the process, MiB",
    "disk_mib": "disk, MiB",
    "build_s": "building, s",
    "restart_s": "restart, s",
}


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """y = at_one · n^slope, fitted by least squares in the logarithms."""

    at_one: float
    slope: float

    def at(self, n: float) -> float:
        """The value for n vectors."""
        return float(self.at_one * n**self.slope)


def fit(rows: Sequence[int], values: Sequence[float]) -> PowerLaw | None:
    """A power law through points; None through fewer than two, or where a value is not positive."""
    if len(rows) < 2 or min(values) <= 0:
        return None
    slope, intercept = np.polyfit(np.log(rows), np.log(values), 1)
    return PowerLaw(float(np.exp(intercept)), float(slope))


def per_row(rows: Sequence[int], values: Sequence[float]) -> float:
    """What each further vector adds: the slope of a straight line, which leaves out what a process takes anyway."""
    return max(float(np.polyfit(rows, values, 1)[0]), 0.0)


def plot(path: Path, rows: Sequence[int], curves: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Draws every figure over the number of vectors, one line per kind.

    Args:
        path: Of the picture.
        rows: Numbers of vectors, ascending.
        curves: Kind → figure → one value per number of vectors.
    """
    import matplotlib as mpl  # noqa: PLC0415 - of the extra `train`

    mpl.use("agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    drawing, axes = plt.subplots(2, 3, figsize=(12, 7), layout="constrained")
    for axis, (figure, title) in zip(axes.flat, FIGURES.items(), strict=True):
        for kind, of_kind in curves.items():
            values = of_kind[figure]
            law = fit(rows, values)
            label = kind if law is None else f"{kind}  n^{law.slope:.2f}"
            axis.plot(rows, values, marker="o", label=label)
        axis.set(xscale="log", yscale="log", title=title, xlabel="vectors")
        axis.grid(visible=True, which="both", alpha=0.3)
        axis.legend(fontsize="small")
    drawing.savefig(path, dpi=110)
    plt.close(drawing)
