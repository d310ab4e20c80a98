"""Progress of long jobs: a bar on a terminal, plain lines otherwise, always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# Said by another value in the line, or of use beside others only.
_IN_TABLES_ONLY = {"step", "seconds", "scale", "positive_cosine", "negative_cosine"}
# Takes the step and the named values of a report.
Report = Callable[[int, dict[str, float]], None]
# Takes a line for a person.
Say = Callable[[str], None]


def silent(line: str) -> None:
    """Says nothing."""


def silent_report(step: int, values: dict[str, float]) -> None:
    """Reports nothing."""


def both(first: Report, second: Report) -> Report:
    """One after the other."""

    def report(step: int, values: dict[str, float]) -> None:
        first(step, values)
        second(step, values)

    return report


@contextmanager
def lines_or_bar(title: str, steps: int) -> Iterator[Report]:
    """Yields what to call with the step and the named values of each report, none where only steps went by.

    Lines tell the time that is left from the second report on, by the pace since the first.

    Args:
        title: What is going on.
        steps: How many there will be.
    """
    if not sys.stderr.isatty():
        first: tuple[int, float] | None = None

        def line(step: int, values: dict[str, float]) -> None:
            nonlocal first
            now_s = monotonic()
            first = first or (step, now_s)
            done = step - first[0]
            left = _left((now_s - first[1]) / done * (steps - step)) if done > 0 and step < steps else ""
            told = ", ".join(part for part in (f"{title}: {step}/{steps}", left, spoken(values)) if part)
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
        task = bar.add_task(title, total=steps, values="", start=False)

        def update(step: int, values: dict[str, float]) -> None:
            if not bar.tasks[task].started:  # a resumed run has done the steps before at no pace of its own
                bar.reset(task, completed=step)
            bar.update(task, completed=step)
            if values:  # the last ones stay in view
                bar.update(task, values=spoken(values))

        yield update


def _left(seconds: float) -> str:
    """As a person would say it."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 90:
        return f"{max(1, round(seconds))} s left"
    return f"{minutes} min left" if minutes < 100 else f"{hours} h left"


def spoken(values: dict[str, float]) -> str:
    """The values a person looks at, shortly."""
    return ", ".join(part for part in map(_spoken, values, values.values()) if part)


def _spoken(name: str, value: float) -> str:
    match name:
        case _ if name in _IN_TABLES_ONLY:
            return ""
        case "samples_per_s":
            return f"{value:.0f} samples/s"
        case "data_wait":
            return f"{100 * value:.0f} % waiting for data"
        case "learning_rate":
            return f"rate {value:.3g}"
        case "skipped":
            return f"{value:.0f} steps skipped" if value else ""
        case _:
            return f"{name} {value:.3f}"
