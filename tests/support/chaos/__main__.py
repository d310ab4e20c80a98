"""Tries every fault once and prints the table: `python -m tests.support.chaos [PART OF A NAME …]`.

What does not hold is a row that says so, and the exit code is 1. `--idle 100` sets for how long connections idle;
`--docs` writes the table into docs/faults.md.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from bench.measured_page import write_between_marks
from tests.support.chaos import (
    clock,
    connections,
    disk,
    killed,
    messages,
    model_files,
    readers,
    stopped,
    streams,
    workers,
)
from tests.support.chaos.faulty_encoder import Fault
from tests.support.chaos.outcome import Outcome, table
from tests.support.chaos.server_process import ServerProcess, server_process

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "faults.md"
# Of the server that all hostile callers meet: long vectors, so that answers weigh something, and small messages.
MAX_MESSAGE_BYTES = 8 * 2**20
SHARED = {"dimension": 1024, "max_message_bytes": MAX_MESSAGE_BYTES}

Trial: TypeAlias = Callable[[], Awaitable[Outcome]]


def trials(folder: Path, server: ServerProcess, *, idle_s: float, kills: int) -> Iterator[tuple[str, Trial]]:
    """Every fault by name; hostile callers meet `server`, the others a server each in `folder`."""
    yield "killed", lambda: killed.killed_under_load(folder / "killed", kills=kills)
    for fault in Fault:
        if fault is not Fault.NONE:
            yield f"worker {fault}", partial(workers.worker_fails, folder / f"worker {fault}", fault)
    yield "model deleted", lambda: model_files.model_deleted(folder / "model")
    yield "disk full", lambda: disk.disk_full(folder / "full")
    yield "clock", lambda: clock.clock_jumps(folder / "clock")
    yield "stopped", lambda: stopped.stopped_and_continued(folder / "stopped")
    yield "ended among streams", lambda: streams.ended_among_streams(folder / "ended")
    yield "files run out", lambda: connections.files_run_out(folder / "files")
    yield "crowd", lambda: connections.crowd(server)
    yield "slow readers", lambda: readers.slow_readers(server)
    yield "exports unread", lambda: readers.exports_unread(server)
    yield "no window", lambda: readers.no_window(server)
    yield "half closed", lambda: streams.half_closed(server)
    yield "callers vanish", lambda: streams.callers_vanish(server)
    yield "malformed", lambda: messages.malformed(server)
    yield "large messages", lambda: messages.large_messages(server, max_message_bytes=MAX_MESSAGE_BYTES)
    yield "idle", lambda: connections.idle(server, idle_s=idle_s)


def run(wanted: list[str], *, idle_s: float, kills: int) -> tuple[list[Outcome], int]:
    """Tries what was asked for.

    Returns:
        The outcomes, and how many of the trials failed.
    """
    outcomes: list[Outcome] = []
    failed = 0
    connections.may_open(4_096)
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        folder = Path(made)
        server = stack.enter_context(server_process(folder / "shared" / "data", **SHARED))
        server.note_rest()
        for name, trial in trials(folder, server, idle_s=idle_s, kills=kills):
            if wanted and not any(part in name for part in wanted):
                continue
            sys.stderr.write(f"{name} …\n")
            try:
                outcomes.append(asyncio.run(_awaited(trial)))
            except pytest.skip.Exception as skipped:
                outcomes.append(Outcome(name, found=f"not tried: {skipped}"))
            except Exception as error:
                traceback.print_exc()
                outcomes.append(
                    Outcome(name, found=f"**DOES NOT HOLD**: {(str(error) or repr(error)).splitlines()[0]}")
                )
                failed += 1
    return outcomes, failed


async def _awaited(trial: Trial) -> Outcome:
    return await trial()


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("wanted", nargs="*", help="parts of names; default: all")
    parser.add_argument("--idle", type=float, default=100.0, help="seconds")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--docs", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    outcomes, failed = run(options.wanted, idle_s=options.idle, kills=options.kills)
    sys.stdout.write(table(outcomes) + "\n")
    if options.docs and not failed and not options.wanted:
        write_between_marks(PAGE, "tests.support.chaos", table(outcomes))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
