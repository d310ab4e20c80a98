"""Signals that ask a run to end: it ends after the step, with its state written."""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

from twinlens.training.ranks import ALONE, Ranks

_CAUGHT: Final = (signal.SIGINT, signal.SIGTERM)
# `timeout`, `torchrun` and others pass on what the process has got already: nobody asks twice within so short a time.
_SAME_ASKING_S = 2.0


class RunInterrupted(KeyboardInterrupt):
    """A run was asked to end and has left its state. The message is one line that says how to go on.

    Attributes:
        signal: That asked.
        step: Of the state.
        exit_code: What a command ends with, as shells say it.
    """

    def __init__(self, signal_number: int, step: int, *, method: str, out: Path, ranks: Ranks = ALONE) -> None:
        """Takes the signal, and which run it ended."""
        what = "interrupted" if signal_number == signal.SIGINT else "terminated"
        # A state is of so many processes.
        start = [] if ranks == ALONE else ["torchrun", "--nproc-per-node", str(ranks.local_world_size), "-m"]
        command = shlex.join([*start, "twinlens", "train", method, "--out", str(out), "--resume"])
        super().__init__(f"{what} at step {step}; go on with: {command}")
        self.signal = signal_number
        self.step = step
        self.exit_code = 128 + signal_number


class Interruption:
    """Notes SIGINT and SIGTERM from the first step on; before it there is nothing to keep, and the run ends at once.

    So it does on a second one. Signals that are ignored stay so. A context manager, which gives the signals back.

    Attributes:
        signal: The one that came, or None.
        stopped_at: The step after which the run was ended, or None.
    """

    def __init__(self, ranks: Ranks = ALONE) -> None:
        """Takes the processes of the run: all note signals, and the first acknowledges one on stderr."""
        self._ranks = ranks
        self._before: dict[int, Any] = {}
        self._noted_s = 0.0
        self.signal: int | None = None
        self.stopped_at: int | None = None

    def __enter__(self) -> Self:
        """Remembers who has the signals now; only the main thread can be asked."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _CAUGHT}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Gives the signals back."""
        for number, before in self._before.items():
            if before is not None:  # not set from Python
                signal.signal(number, before)

    def catch(self) -> None:
        """Notes signals from now on."""
        for number, before in self._before.items():
            if before not in {None, signal.SIG_IGN}:
                signal.signal(number, self._note)

    def raise_if_stopped(self, *, method: str, out: Path) -> None:
        """Tells of a run that was ended.

        Raises:
            RunInterrupted: if it was.
        """
        if self.stopped_at is not None:  # perhaps by a signal that only another rank got
            number = self.signal or signal.SIGTERM
            raise RunInterrupted(number, self.stopped_at, method=method, out=out, ranks=self._ranks)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.signal is None:
            self.signal, self._noted_s = number, now_s
            if self._ranks.is_first:  # past Python's buffers, one of which may be half written
                with suppress(OSError):  # of a terminal that has gone
                    os.write(2, b"twinlens: ending after this step; once more ends at once\n")
        elif now_s - self._noted_s >= _SAME_ASKING_S:
            before = self._before[number]
            signal.signal(number, before)
            if callable(before):
                before(number, frame)
            else:
                signal.raise_signal(number)
