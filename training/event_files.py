"""Reports as event files, which TensorBoard shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from twinlens.training.errors import CheckpointError, ConfigError
from twinlens.training.progress import Report

# Tell where a row stands, not what it measures.
_PLACES = {"step", "seconds"}


@contextmanager
def event_files(folder: Path, start: int) -> Iterator[Report]:
    """Yields what to call with the step and the named values of each report.

    Args:
        folder: Of the run: the files lie where TensorBoard finds them, with the run's name.
        start: The step that the run goes on from: TensorBoard hides what an interrupted run wrote of later ones.

    Raises:
        ConfigError: if the package tensorboard is not installed.
        CheckpointError: if a file cannot be written.
    """
    check_event_files()
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - seconds, and only where it is asked for

    writer: SummaryWriter | None = None

    def write(step: int, values: dict[str, float]) -> None:
        nonlocal writer
        try:
            if writer is None and values:  # not before: a run of which nothing comes leaves nothing
                writer = SummaryWriter(str(folder), purge_step=start + 1 if start else None)
            for name, value in values.items():
                if writer is not None and name not in _PLACES:
                    writer.add_scalar(name, value, step)
        except OSError as error:
            raise CheckpointError(f"cannot write to {folder}: {error.strerror or error}") from error

    try:
        yield write
    finally:
        if writer is not None:
            with suppress(OSError):
                writer.close()


def check_event_files() -> None:
    """Refuses before the data are read where nothing can write them.

    Raises:
        ConfigError: if the package tensorboard is not installed.
    """
    if find_spec("tensorboard") is None:
        raise ConfigError(
            'train.tensorboard: the package is not installed; install "twinlens[tensorboard]", or leave it out: '
            "metrics.csv holds the same numbers"
        )
