"""The table, the answers to the ablations, and the learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bench.self_supervised.rows import QUESTIONS

_CONSOLE = Console(width=140)
_COLUMNS = (
    "kNN",
    "linear",
    "of z",
    "1 % labels",
    "10 % labels",
    "std (1 is best)",
    "rank of dim",
    "epochs",
    "images/s",
)


def print_methods(figures: Sequence[Mapping[str, Any]]) -> None:
    """One line a method."""
    _print("methods", figures)


def print_questions(figures: Mapping[str, Mapping[str, Any]]) -> None:
    """One table a question, of those runs that are there."""
    for question in QUESTIONS:
        found = [figures[row.name] for row in question.rows if row.name in figures]
        _print(question.title, found)


def draw_curves(figures: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Accuracy by nearest neighbours over minutes of training, one line a method."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - chooses how to draw when imported

    figure, axes = plt.subplots(figsize=(9, 6), dpi=110)
    colours = plt.get_cmap("tab20")
    for number, each in enumerate(figures):
        if len(each["curve"]) > 1:
            minutes, accuracies = zip(*each["curve"], strict=True)
            axes.plot(minutes, accuracies, marker=".", label=each["name"], color=colours(number % 20))
        else:
            axes.axhline(each["knn"], linestyle=":", label=each["name"], color=colours(number % 20))
    axes.set(xlabel="minutes of training", ylabel="kNN accuracy (k = 20)", title="CIFAR-10, 10,000 pictures")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=2)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _print(title: str, figures: Sequence[Mapping[str, Any]]) -> None:
    if not figures:
        return
    table = Table("run", *_COLUMNS, title=title, box=SIMPLE)
    for column in table.columns[1:]:
        column.justify = "right"
    for each in figures:
        shots = each["low_shot"]
        table.add_row(
            each["name"],
            f"{each['knn']:.3f}",
            f"{each['linear']:.3f}",
            "" if each.get("linear_behind_head") is None else f"{each['linear_behind_head']:.3f}",
            *(f"{shots[share]:.3f}" if share in shots else "" for share in ("0.01", "0.1")),
            f"{each['std']:.2f}",
            f"{each['rank']:.0f} of {each['dim']}",
            f"{each['epochs']:.0f}",
            f"{each['images_per_s']:.0f}",
        )
    _CONSOLE.print(table)
