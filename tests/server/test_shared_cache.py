from __future__ import annotations

import asyncio

import pytest

from twinlens.server.core.shared_cache import SharedCache


class Maker:
    """Makes values of their key, when it may."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.cancelled: list[str] = []
        self.may = asyncio.Event()
        self.may.set()
        self.error: Exception | None = None

    async def make(self, key: str) -> str:
        self.made.append(key)
        try:
            await self.may.wait()
        except asyncio.CancelledError:
            self.cancelled.append(key)
            raise
        if self.error is not None:
            raise self.error
        return key


async def test_equal_requests_at_the_same_time_make_a_value_once() -> None:
    cache, maker = SharedCache(len, 100), Maker()
    assert await asyncio.gather(*(cache.get("a", lambda: maker.make("a")) for _ in range(5))) == ["a"] * 5
    assert await cache.get("a", lambda: maker.make("a")) == "a"
    assert maker.made == ["a"]


async def test_the_least_recently_used_go_first() -> None:
    cache, maker = SharedCache(len, 5), Maker()

    async def get(key: str) -> None:
        assert await cache.get(key, lambda: maker.make(key)) == key

    for key in ("aa", "bb", "aa", "cc", "aa", "bb"):
        await get(key)
    assert maker.made == ["aa", "bb", "cc", "bb"]


async def test_a_large_value_drives_out_several_and_all_room_is_there_again() -> None:
    cache, maker = SharedCache(len, 5), Maker()
    for key in ("bb", "cc", "large", "cc", "bb", "cc", "bb"):
        assert await cache.get(key, lambda key=key: maker.make(key)) == key  # type: ignore[misc]
    assert maker.made == ["bb", "cc", "large", "cc", "bb"]


async def test_a_value_larger_than_all_room_is_made_but_drives_nothing_out() -> None:
    cache, maker = SharedCache(len, 3), Maker()
    for key in ("aa", "huge", "aa", "huge"):
        assert await cache.get(key, lambda key=key: maker.make(key)) == key  # type: ignore[misc]
    assert maker.made == ["aa", "huge", "huge"]


async def test_a_failure_reaches_everybody_who_waits_and_is_not_kept() -> None:
    cache, maker = SharedCache(len, 100), Maker()
    maker.error = ValueError("no")
    results = await asyncio.gather(*(cache.get("a", lambda: maker.make("a")) for _ in range(2)), return_exceptions=True)
    assert [str(result) for result in results] == ["no", "no"]
    maker.error = None
    assert await cache.get("a", lambda: maker.make("a")) == "a"
    assert maker.made == ["a", "a"]


async def test_work_goes_on_when_the_caller_who_asked_first_goes_away() -> None:
    cache, maker = SharedCache(len, 100), Maker()
    maker.may.clear()
    first = asyncio.create_task(cache.get("a", lambda: maker.make("a")))
    await asyncio.sleep(0)
    second = asyncio.create_task(cache.get("a", lambda: maker.make("a")))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    maker.may.set()
    assert await second == "a"
    assert maker.made == ["a"]


async def test_work_that_nobody_waits_for_any_more_is_cancelled_and_begun_anew_for_who_asks_then() -> None:
    cache, maker = SharedCache(len, 100), Maker()
    maker.may.clear()
    waiting = [asyncio.create_task(cache.get("a", lambda: maker.make("a"))) for _ in range(2)]
    await asyncio.sleep(0)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    again = asyncio.create_task(cache.get("a", lambda: maker.make("a")))
    await asyncio.sleep(0)
    maker.may.set()
    assert await again == "a"
    assert maker.cancelled == ["a"]
    assert maker.made == ["a", "a"]


async def test_work_that_ends_after_all_though_nobody_waits_is_kept_once() -> None:
    cache, may = SharedCache(len, 5), asyncio.Event()

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await may.wait()
        return "aa"

    first = asyncio.create_task(cache.get("a", stubborn))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    maker = Maker()
    async with asyncio.timeout(5):
        assert await cache.get("a", lambda: maker.make("aa")) == "aa"
    may.set()
    for _ in range(3):
        await asyncio.sleep(0)
    for key in ("bb", "a"):  # for which there is room: what is kept was counted once
        await cache.get(key, lambda key=key: maker.make(key))  # type: ignore[misc]
    assert maker.made == ["aa", "bb"]


async def test_closing_stops_what_still_runs() -> None:
    cache, maker = SharedCache(len, 100), Maker()
    maker.may.clear()
    waiting = asyncio.create_task(cache.get("a", lambda: maker.make("a")))
    await asyncio.sleep(0)
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
