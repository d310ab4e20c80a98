"""Progress of a long command on stderr: a bar on a terminal, a plain line now and then otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

_PLAIN_EVERY_S = 10.0


class Progress(Protocol):
    """Told of each item done."""

    def advance(self, *, failed: bool = False) -> None:
        """Counts one more."""
        ...


class _Plain:
    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._of = "" if total is None else f" of {total}"
        self._done = self._failed = 0
        self._last_s = time.monotonic()

    def advance(self, *, failed: bool = False) -> None:
        self._done += 1
        self._failed += failed
        now = time.monotonic()
        if now - self._last_s >= _PLAIN_EVERY_S:
            self._last_s = now
            sys.stderr.write(f"{self._what}: {self._done}{self._of} done{_spoken(self._failed)}\n")


def _spoken(failed: int) -> str:
    return f", {failed} failed" if failed else ""


@contextmanager
def progress_on_stderr(what: str, total: int | None = None) -> Iterator[Progress]:
    """Shows progress until the block ends.

    Args:
        what: A verb with its object, as `embedding`.
        total: Items to come, where known.
    """
    if not sys.stderr.isatty():
        yield _Plain(what, total)
        return
    from rich.console import Console  # noqa: PLC0415 - only terminals pay for it
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, failed="")

        class _OnTerminal:
            failed = 0

            def advance(self, *, failed: bool = False) -> None:
                self.failed += failed
                bar.update(task, advance=1, failed=_spoken(self.failed).removeprefix(", "))

        yield _OnTerminal()


@contextmanager
def bytes_on_stderr(what: str) -> Iterator[Callable[[int], None]]:
    """Shows how much was copied and how fast, from the first byte on; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only terminals pay for it
    from rich.progress import DownloadColumn, TextColumn, TransferSpeedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    with Bar(
        TextColumn("{task.description}"),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=None, visible=False)
        yield lambda count: bar.update(task, advance=count, visible=True)
