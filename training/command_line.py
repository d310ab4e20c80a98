"""What the commands of this room have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import typer

from twinlens.printable import printable
from twinlens.training.errors import TrainingRoomError
from twinlens.training.interruption import RunInterrupted
from twinlens.training.ranks import launched_ranks


@contextmanager
def for_people() -> Iterator[None]:
    """Around a command's work: errors of this room and ended runs become one line, and waiting threads soon sleep."""
    # OpenMP threads that spin while they wait starve everything else on the machine, and to wake those that sleep at
    # once costs a tenth of a step: they spin for some microseconds. Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        yield
    except TrainingRoomError as error:
        raise click.ClickException(" ".join(str(error).split())) from error
    except RunInterrupted as ended:
        if not launched_ranks().is_first:  # which tells it for all
            raise typer.Exit(ended.exit_code) from ended
        raise _Ended(str(ended), ended.exit_code) from ended


def say(line: str) -> None:
    """A line for a person beside the result, with what would not print escaped."""
    typer.echo(printable(line), err=True)


def named_path(text: str) -> Path:
    """What an option names; an empty text, as of an unset variable, would be the current folder."""
    if not text:
        raise typer.BadParameter("it names nothing; give a file or a folder")
    return Path(text)


class _Ended(click.ClickException):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click reads it from the error
