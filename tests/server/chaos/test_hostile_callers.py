"""What callers do to a server, and to each other through it; after each of them it is as before."""

from __future__ import annotations

import pytest

from tests.support.chaos import connections, messages, readers, streams
from tests.support.chaos.__main__ import MAX_MESSAGE_BYTES
from tests.support.chaos.server_process import ServerProcess


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
async def test_a_crowd_of_connections_is_answered(count: int, server: ServerProcess) -> None:
    if not connections.may_open(count + 200):
        pytest.skip("this process may not open so many connections")
    await connections.crowd(server, connections=count, name=f"crowd of {count}")


async def test_a_stream_nobody_reads_is_not_read_either(server: ServerProcess) -> None:
    await readers.slow_readers(server)


async def test_exports_nobody_reads_give_their_places_back(server: ServerProcess) -> None:
    await readers.exports_unread(server)


async def test_answers_that_may_not_be_sent_hold_up_nobody_else(server: ServerProcess) -> None:
    await readers.no_window(server)


async def test_streams_closed_at_any_point_are_answered(server: ServerProcess) -> None:
    await streams.half_closed(server)


async def test_nothing_stays_of_callers_who_vanish_within_a_stream(server: ServerProcess) -> None:
    await streams.callers_vanish(server, callers_gone=12)


async def test_bytes_that_are_no_message_are_refused_by_every_method(server: ServerProcess) -> None:
    await messages.malformed(server)


async def test_large_messages_are_answered_and_too_large_ones_refused(server: ServerProcess) -> None:
    await messages.large_messages(server, max_message_bytes=MAX_MESSAGE_BYTES)


@pytest.mark.parametrize("idle_s", [pytest.param(100.0, marks=pytest.mark.slow)])
async def test_an_idle_connection_is_kept(idle_s: float, server: ServerProcess) -> None:
    await connections.idle(server, idle_s=idle_s)
