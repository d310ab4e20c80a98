"""What the commands of this room have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from twinlens.training.errors import TrainingRoomError


@contextmanager
def for_people() -> Iterator[None]:
    """Around a command's work: errors of this room become one line, and waiting threads sleep."""
    # OpenMP threads that spin while they wait starve everything else on the machine; read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        yield
    except TrainingRoomError as error:
        raise click.ClickException(" ".join(str(error).split())) from error
