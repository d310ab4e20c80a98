"""The folder of a run: new, or an interrupted run's that goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from twinlens.training.checkpoint import CHECKPOINT_FILE
from twinlens.training.config import ConfigError
from twinlens.training.csv_rows import keep_rows_until
from twinlens.training.run_records import check_same_run
from twinlens.training.run_state import STATE_FILE

METRICS_FILE = "metrics.csv"
EVALUATIONS_FILE = "evaluations.csv"


def check_run_folder(out: Path, config: Mapping[str, Any], *, resume: bool) -> None:
    """Refuses a folder that the run cannot have.

    Args:
        out: The folder.
        config: As it would be recorded.
        resume: Whether an interrupted run goes on there.

    Raises:
        ConfigError: if a new run's folder is not empty; or a resumed one holds no state, or one of another run.
    """
    if not resume:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"{out} is not an empty folder; name a new one for the run")
        return
    if (out / STATE_FILE).is_file():
        check_same_run(out, config)
    elif (out / CHECKPOINT_FILE).is_file():
        raise ConfigError(f"{out} holds a finished run; there is nothing to resume")
    else:
        raise ConfigError(f"{out} holds no state to go on from (train.state_every says when one is written)")


@contextmanager
def run_folder(out: Path) -> Iterator[None]:
    """Makes the folder; where nothing comes of it, it goes again.

    Raises:
        ConfigError: if it cannot be made.
    """
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{out} cannot be made: {error.strerror or error}") from None
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):  # something lies in it
                out.rmdir()
        raise


def cut_tables(out: Path, step: int) -> None:
    """Takes back what an interrupted run wrote after the state it goes on from.

    Raises:
        DataError: if a table is no table of numbers.
    """
    for name in (METRICS_FILE, EVALUATIONS_FILE):
        keep_rows_until(out / name, step)
