"""What happens to a server: it is killed, stopped, its encoder fails, its files go, its disk is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chaos.clock import clock_jumps
from tests.support.chaos.connections import files_run_out
from tests.support.chaos.disk import disk_full
from tests.support.chaos.faulty_encoder import Fault
from tests.support.chaos.killed import killed_under_load
from tests.support.chaos.model_files import model_deleted
from tests.support.chaos.stopped import stopped_and_continued
from tests.support.chaos.streams import ended_among_streams
from tests.support.chaos.workers import worker_fails


async def test_what_was_acknowledged_survives_kills_under_load_and_callers_go_on(tmp_path: Path) -> None:
    outcome = await killed_under_load(tmp_path, kills=2)
    assert outcome.told["OK"] > 0


# One way of each kind; the rest take the same path.
@pytest.mark.parametrize("fault", [Fault.RAISES, Fault.HANGS, Fault.PANICS])
async def test_a_failing_encoder_turns_health_red_and_the_server_recovers_by_itself(
    fault: Fault, tmp_path: Path
) -> None:
    await worker_fails(tmp_path, fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault not in {"none", "raises", "hangs", "panics"}])
async def test_it_recovers_from_every_other_way_of_failing(fault: Fault, tmp_path: Path) -> None:
    await worker_fails(tmp_path, fault)


async def test_a_model_whose_files_are_deleted_is_served_on(tmp_path: Path) -> None:
    await model_deleted(tmp_path)


async def test_a_full_disk_fails_writes_alone_and_loses_nothing(tmp_path: Path) -> None:
    await disk_full(tmp_path)


async def test_a_jump_of_the_clock_is_not_felt(tmp_path: Path) -> None:
    await clock_jumps(tmp_path)


async def test_a_server_that_was_stopped_goes_on_and_takes_no_worker_for_stuck(tmp_path: Path) -> None:
    await stopped_and_continued(tmp_path, times=1)


async def test_open_streams_do_not_hold_up_the_end(tmp_path: Path) -> None:
    await ended_among_streams(tmp_path)


async def test_no_room_for_open_files_is_no_end(tmp_path: Path) -> None:
    await files_run_out(tmp_path)
