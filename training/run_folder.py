"""The folder of a run: new, or an interrupted run's that goes on."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from twinlens.training.csv_rows import keep_rows_until
from twinlens.training.errors import ConfigError
from twinlens.training.made_folder import made_folder
from twinlens.training.run_files import CHECKPOINT_FILE, CONFIG_FILE, EVALUATIONS_FILE, METRICS_FILE, STATE_FILE
from twinlens.training.run_records import RECORDS, check_same_run


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
                _check_content(out, resume=True)
                check_same_run(out, config)
            yield
            return
        with _alone_in(out):
            _check_content(out, resume=resume)
            if resume:
                check_same_run(out, config)
                for half_written in out.glob("*.pt.*.tmp"):  # of checkpoints, by a process that was killed meanwhile
                    half_written.unlink(missing_ok=True)
            try:
                yield
            except BaseException:
                if not resume:
                    _forget_what_came_to_nothing(out)
                raise


def check_run_folder(out: Path, *, resume: bool) -> None:
    """Refuses a folder that no run can have, before anything is loaded; `run_folder` looks again.

    Raises:
        ConfigError: if it is a file, another run is under way in it, a new run's is not empty, or a resumed one holds
            no state.
    """
    if out.is_dir():
        with _alone_in(out):
            _check_content(out, resume=resume)
    elif out.exists():
        raise ConfigError(f"{out} is a file; name a folder for the run")
    elif resume:
        _check_content(out, resume=True)


def _check_content(out: Path, *, resume: bool) -> None:
    interrupted, finished = ((out / name).is_file() for name in (STATE_FILE, CHECKPOINT_FILE))
    if resume and interrupted:
        return
    if not resume and not any(out.iterdir()):
        return
    if resume and finished:
        raise ConfigError(f"{out} holds a finished run; there is nothing to resume")
    if resume and not (out / CONFIG_FILE).is_file():
        raise ConfigError(f"{out} holds no run to go on with")
    if interrupted:
        raise ConfigError(f"{out} holds an interrupted run: go on with --resume, or name a new folder")
    if finished:
        raise ConfigError(f"{out} holds a finished run; name a new folder")
    if (out / CONFIG_FILE).is_file():
        raise ConfigError(
            f"{out} holds a run that ended before its first state was written (train.state_every): delete the folder "
            "and start again"
        )
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
