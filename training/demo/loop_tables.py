"""The table of `make demo-loop`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from twinlens.training.data.scenes import KINDS
from twinlens.training.demo.loop_measure import Measured


@dataclass(frozen=True)
class Row:
    """A model and what it is worth.

    Attributes:
        model: How it came to be.
        path: Whether it was measured through the server or in this process.
        space_id: Of its vectors; empty where it was not exported.
        measured: The values.
    """

    model: str
    path: str
    space_id: str
    measured: Measured


def results_table(rows: Sequence[Row], held_out: int) -> Table:
    """Recall and word order of each model, one below the other; "attribute", … are the words swapped."""
    table = Table(
        title=f"On {held_out} held-out scenes (chance: R@1 {1 / held_out:.3f}, word order 0.5)", pad_edge=False
    )
    table.caption = (
        "Words swapped: attribute, relation, object.\n"
        "Measured through the server; the control (not mined) in this process."
    )
    table.add_column("model", overflow="fold", min_width=22)
    for heading in ("R@1", "R@5", *(kind.removeprefix("swap_") for kind in KINDS), "mean"):
        table.add_column(heading, justify="right")
    for row in rows:
        values = row.measured
        table.add_row(
            row.model,
            f"{values.recall_at_1:.3f}",
            f"{values.recall_at_5:.3f}",
            *(f"{values.word_order[kind]:.3f}" for kind in KINDS),
            f"[bold]{values.word_order['mean']:.3f}[/bold]",
        )
    return table
