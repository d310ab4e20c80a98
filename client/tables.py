"""Hits, labels and items as tables that people read; plain text where there is no terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from twinlens.client.types import Classification, Hit, Item
from twinlens.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

_CAPTION = 200


def hit_table(title: str, answers: Sequence[tuple[str, Sequence[Hit]]], *, captions: bool | None = None) -> Table:
    """One block of rows a query: rank, score and id of its hits.

    Args:
        title: Heading of the table.
        answers: Queries with their hits, best first.
        captions: Show the hits' captions; None: if there are any.
    """
    with_captions = captions if captions is not None else any(hit.caption for _, hits in answers for hit in hits)
    table = new_table(title)
    several = len(answers) > 1
    if several:
        table.add_column("query", overflow="fold")
    table.add_column("#", justify="right")
    table.add_column("score", justify="right")
    table.add_column("id", overflow="fold")
    if with_captions:
        table.add_column("caption", overflow="fold")
    for query, hits in answers:
        for rank, hit in enumerate(hits, 1):
            cells: list[str | Text] = [str(rank), f"{hit.score:.3f}", plain(hit.id)]
            if several:
                cells.insert(0, plain(query) if rank == 1 else "")
            if with_captions:
                cells.append(plain(_shortened(hit.caption)))
            table.add_row(*cells)
        if several and not hits:
            table.add_row(plain(query), "", "", "no hits")
        if several:
            table.add_section()
    return table


def label_table(title: str, names: Sequence[str], results: Sequence[Classification]) -> Table:
    """One row a picture: its best labels with their probabilities.

    Args:
        title: Heading of the table.
        names: What to call the pictures, in order.
        results: What became of them, in the same order.
    """
    table = new_table(title)
    table.add_column("picture", overflow="fold")
    table.add_column("label", overflow="fold")
    table.add_column("probability", justify="right")
    table.add_column("cosine", justify="right")
    runners_up = any(len(result.scores) > 1 for result in results)
    if runners_up:
        table.add_column("next", overflow="fold")
    for name, result in zip(names, results, strict=True):
        if not result.scores:
            table.add_row(plain(name), Text(printable(str(result.error or "no label")), style="red"))
            continue
        best, *others = result.scores
        row: list[str | Text] = [plain(name), plain(best.label), f"{best.probability:.3f}", f"{best.cosine:.3f}"]
        if runners_up:
            row.append(plain(", ".join(f"{each.label} {each.probability:.3f}" for each in others[:2])))
        table.add_row(*row)
    return table


def count_table(title: str, counts: Mapping[str, int]) -> Table:
    """How often each label came first, most often first."""
    table = new_table(title)
    table.add_column("label", overflow="fold")
    table.add_column("pictures", justify="right")
    for label, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        table.add_row(plain(label), f"{count:,}")
    return table


def item_table(items: Sequence[Item]) -> Table:
    """One row an item."""
    table = new_table("Items")
    for name in ("id", "caption", "uri", "updated"):
        table.add_column(name, overflow="fold")
    for item in items:
        updated = f"{item.update_time:%Y-%m-%d %H:%M} UTC"
        table.add_row(plain(item.id), plain(_shortened(item.caption)), plain(item.uri), updated)
    return table


def stdout_console() -> Console:
    """Where tables go. Without a terminal lines may be as long as they must, so that nothing is folded."""
    from rich.console import Console  # noqa: PLC0415

    console = Console(soft_wrap=False, highlight=False)
    if not console.is_terminal:
        console = Console(width=10_000, highlight=False, color_system=None)
    return console


def new_table(title: str) -> Table:
    """An empty table with a heading."""
    return Table(
        title=Text(printable(title), style="bold", no_wrap=True, overflow="ignore"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )


def _shortened(caption: str) -> str:
    """A caption's beginning: without a terminal the longest decides how wide all rows are. --json has all of it."""
    return caption if len(caption) <= _CAPTION else caption[: _CAPTION - 1] + "…"


def plain(text: str) -> Text:
    """Text as it is: never markup, never control characters that would move the cursor."""
    return Text(printable(text))
