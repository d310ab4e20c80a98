"""The folder of a run: new, or an interrupted run's that goes on."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from twinlens.training.checkpoint import CHECKPOINT_FILE
from twinlens.training.config import ConfigError
from twinlens.training.csv_rows import keep_rows_until
from twinlens.training.made_folder import made_folder
from twinlens.training.run_records import CONFIG_FILE, RECORDS, check_same_run
from twinlens.training.run_state import STATE_FILE

METRICS_FILE = "metrics.csv"
EVALUATIONS_FILE = "evaluations.csv"


@contextmanager
def run_folder(out: Path, config: Mapping[str, Any], *, resume: bool, first: bool = True) -> Iterator[None]:
    """Makes the folder, keeps other runs out of it, and refuses one that the run cannot have.

    Where nothing comes of a new run, not a row nor a state, its folder or what it wrote in it goes again.

    Args:
        out: The folder.
        config: As it would be recorded.
        resume: Whether an interrupted run goes on there.
        first: Whether this process is the one, of those that share the run, to write and to keep others out.

    Raises:
        ConfigError: if it cannot be made, another run is under way in it, a new run's is not empty, or a resumed one
            holds no state, or one of another run.
    """
    with made_folder(out):
        if not first:
            if resume:  # while a new run's first process may have begun to write
                check_run_folder(out, config, resume=True)
            yield
            return
        with _alone_in(out):
            check_run_folder(out, config, resume=resume)
            try:
                yield
            except BaseException:
                if not resume:
                    _forget_what_came_to_nothing(out)
                raise


def check_run_folder(out: Path, config: Mapping[str, Any], *, resume: bool) -> None:
    """Refuses a folder that the run cannot have, by what is in it.

    Raises:
        ConfigError: if a new run's folder is not empty; or a resumed one holds no state, or one of another run.
    """
    interrupted, finished = ((out / name).is_file() for name in (STATE_FILE, CHECKPOINT_FILE))
    if resume and interrupted:
        check_same_run(out, config)
    elif resume and finished:
        raise ConfigError(f"{out} holds a finished run; there is nothing to resume")
    elif resume and not (out / CONFIG_FILE).is_file():
        raise ConfigError(f"{out} holds no run to go on with")
    elif not resume and not (out.is_dir() and any(out.iterdir())):
        return
    elif interrupted:
        raise ConfigError(f"{out} holds an interrupted run: go on with --resume, or name a new folder")
    elif finished:
        raise ConfigError(f"{out} holds a finished run; name a new folder")
    elif (out / CONFIG_FILE).is_file():
        raise ConfigError(
            f"{out} holds a run that ended before its first state was written (train.state_every): delete the folder "
            "and start again"
        )
    else:
        raise ConfigError(f"{out} is not an empty folder; name a new one for the run")


@contextmanager
def _alone_in(out: Path) -> Iterator[None]:
    """Holds the folder until the process ends, however it does.

    Raises:
        ConfigError: if another process holds it.
    """
    descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another process trains in {out}; wait for it, or name a new folder") from None
        except OSError:  # some network file systems lock no folders
            pass
        yield
    finally:
        os.close(descriptor)


def _forget_what_came_to_nothing(out: Path) -> None:
    if any((out / name).exists() for name in (METRICS_FILE, STATE_FILE, CHECKPOINT_FILE)):
        return
    with suppress(OSError):
        for name in (*RECORDS, EVALUATIONS_FILE):
            (out / name).unlink(missing_ok=True)


def cut_tables(out: Path, step: int) -> None:
    """Takes back what an interrupted run wrote after the state it goes on from.

    Raises:
        DataError: if a table is no table of numbers.
    """
    for name in (METRICS_FILE, EVALUATIONS_FILE):
        keep_rows_until(out / name, step)
