"""Progress of long jobs: a bar on a terminal, plain lines otherwise, always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# Takes the step and the named values of a report.
Report = Callable[[int, dict[str, float]], None]


@contextmanager
def lines_or_bar(title: str, steps: int) -> Iterator[Report]:
    """Yields what to call with the step and the named values of each report.

    Args:
        title: What is going on.
        steps: How many there will be.
    """
    if not sys.stderr.isatty():

        def line(step: int, values: dict[str, float]) -> None:
            told = ", ".join(part for part in (f"{title}: {step}/{steps}", spoken(values)) if part)
            print(told, file=sys.stderr, flush=True)  # noqa: T201

        yield line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[values]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=steps, values="")
        yield lambda step, values: bar.update(task, completed=step, values=spoken(values))


def spoken(values: dict[str, float]) -> str:
    """The values a person looks at, shortly."""
    shown = {name: value for name, value in values.items() if name not in {"step", "seconds"}}
    return ", ".join(
        f"{value:.0f} samples/s" if name == "samples_per_s" else f"{name} {value:.3f}" for name, value in shown.items()
    )
