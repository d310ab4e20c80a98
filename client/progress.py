"""How far a long job is: a bar on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twinlens.client.collection_types import OperationProgress, ShowProgress
from twinlens.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

_LINE_EVERY_S = 10.0


class Progress:
    """Counts what is done; the forms below show it."""

    def advance(self, count: int) -> None:
        """So many more are done."""

    def say(self, line: str) -> None:
        """Prints a line of its own, above the bar where there is one."""


class _Lines(Progress):
    def __init__(self, console: Console, verb: str) -> None:
        self._console = console
        self._verb = verb
        self._done = 0
        self._shown_s = time.monotonic()

    def advance(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._shown_s >= _LINE_EVERY_S:
            self._shown_s = time.monotonic()
            self.say(f"{self._verb} {self._done:,}")

    def say(self, line: str) -> None:
        print_line(self._console, line)


class _Bar(Progress):
    def __init__(self, console: Console, advance: Callable[[int], None]) -> None:
        self._console = console
        self._advance = advance

    def advance(self, count: int) -> None:
        self._advance(count)

    def say(self, line: str) -> None:
        print_line(self._console, line)


def stderr_console() -> Console:
    """Where progress and failures go."""
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True, highlight=False)


def print_line(console: Console, line: str) -> None:
    """One line as it is: not folded, no markup, no emoji for `:car:`, and no control characters of a file's name."""
    console.print(printable(line), markup=False, emoji=False, soft_wrap=True)


@contextmanager
def progress(verb: str, count_all: Callable[[], int] | None = None) -> Iterator[Progress]:
    """Shows how far a job is while the block lasts.

    Args:
        verb: What happens to the items: "labelled", "stored".
        count_all: Counts the items there are, beside the job and only where there is a bar to show the rest.
    """
    console = stderr_console()
    if not console.is_terminal:
        yield _Lines(console, verb)
        return
    from rich import progress as rich_progress  # noqa: PLC0415

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(verb, total=None)
        if count_all is not None:
            count = count_all

            def learn_total() -> None:
                with contextlib.suppress(Exception):  # a bar without a total: the job itself will say what is wrong
                    bar.update(task, total=count())

            threading.Thread(target=learn_total, name="twinlens-count", daemon=True).start()
        yield _Bar(console, lambda count: bar.advance(task, count))


@contextmanager
def step_progress() -> Iterator[ShowProgress]:
    """Shows how far an operation on a server is while the block lasts: its steps, and how much of each is done."""
    console = stderr_console()
    if not console.is_terminal:
        yield _StepLines(console)
        return
    from rich import progress as rich_progress  # noqa: PLC0415

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeElapsedColumn(),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("waiting for the server", total=None)
        yield lambda now: bar.update(task, description=now.step, completed=now.done, total=now.total or None)


class _StepLines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown_s = time.monotonic()

    def __call__(self, now: OperationProgress) -> None:
        if time.monotonic() - self._shown_s >= _LINE_EVERY_S:
            self._shown_s = time.monotonic()
            of = f" of {now.total:,}" if now.total else ""
            print_line(self._console, f"{now.step}: {now.done:,}{of}")
