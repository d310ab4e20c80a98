from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from tests.server.test_message_streams import Gates, Source, one, settle, streams
from tests.server.watched import until
from twinlens.server.core.errors import ServiceError, invalid_argument


async def test_a_stream_that_waits_for_room_to_work_in_holds_one_message_for_it() -> None:
    gates, both, waits = Gates(), streams(window=4, most_at_work=1), Source(9)
    async with (
        aclosing(both.answers(aiter(Source(1)), gates.work, one)) as others,
        aclosing(both.answers(aiter(waits), gates.work, one)) as answers,
    ):
        other = asyncio.create_task(anext(others))
        await until(lambda: gates.inside == [0])
        first = asyncio.create_task(anext(answers))
        await settle()
        assert waits.taken == 1
        gates.open(*range(9))
        assert await other == await first == "answer 0"
        assert [answer async for answer in answers] == [f"answer {i}" for i in range(1, 9)]


async def test_a_message_that_cannot_be_weighed_ends_the_stream() -> None:
    def weigh(message: int) -> int:
        raise invalid_argument(f"what is {message}?")

    with pytest.raises(ServiceError, match="what is 0"):
        await anext(streams().answers(aiter(Source(9)), Gates().work, weigh))
