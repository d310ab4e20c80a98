"""Room by weight: never more than there is but for what is alone, in order, and given back by whoever gives up."""

from __future__ import annotations

import asyncio
import random

import pytest

from twinlens.server.core.weighed_room import WeighedRoom


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Guest:
    """Somebody who wants in."""

    def __init__(self, room: WeighedRoom, weight: int) -> None:
        self.weight = weight
        self.inside = False
        self._leave = asyncio.Event()
        self.task = asyncio.create_task(self._visit(room))

    async def _visit(self, room: WeighedRoom) -> None:
        async with room.hold(self.weight):
            self.inside = True
            try:
                await self._leave.wait()
            finally:
                self.inside = False

    def leave(self) -> None:
        self._leave.set()


async def test_what_fits_is_let_in_at_once_and_the_rest_in_order() -> None:
    room = WeighedRoom(10)
    guests = [Guest(room, weight) for weight in (6, 4, 5, 1)]
    await settle()
    # The last one would fit, but does not overtake the one before.
    assert [guest.inside for guest in guests] == [True, True, False, False]
    guests[0].leave()
    await settle()
    assert [guest.inside for guest in guests] == [False, True, True, True]
    assert room.held == 10
    for guest in guests:
        guest.leave()
    await asyncio.gather(*(guest.task for guest in guests))
    assert room.held == 0


async def test_what_is_more_than_all_the_room_is_let_in_alone() -> None:
    room = WeighedRoom(10)
    guests = [Guest(room, weight) for weight in (1, 99, 1)]
    await settle()
    assert [guest.inside for guest in guests] == [True, False, False]
    guests[0].leave()
    await settle()
    assert [guest.inside for guest in guests] == [False, True, False]
    guests[1].leave()
    await settle()
    assert guests[2].inside
    guests[2].leave()
    await asyncio.gather(*(guest.task for guest in guests))


async def test_who_gives_up_while_waiting_makes_way_for_those_behind() -> None:
    room = WeighedRoom(10)
    guests = [Guest(room, weight) for weight in (8, 9, 2)]
    await settle()
    guests[1].task.cancel()
    await settle()
    assert [guest.inside for guest in guests] == [True, False, True]
    for guest in guests:
        guest.leave()
    await asyncio.gather(*(guest.task for guest in guests), return_exceptions=True)
    assert room.held == 0


async def test_who_gives_up_just_when_let_in_gives_the_room_back() -> None:
    room = WeighedRoom(10)
    async with room.hold(10):
        second, third = Guest(room, 10), Guest(room, 10)
        await settle()
    # From here on there is room for `second`, who does not know yet.
    assert room.held == 10
    assert not second.inside
    second.task.cancel()
    await settle()
    assert third.inside
    third.leave()
    await third.task
    assert room.held == 0


@pytest.mark.parametrize("seed", range(5))
async def test_whoever_comes_goes_and_gives_up_the_room_adds_up(seed: int) -> None:
    chance, room = random.Random(seed), WeighedRoom(20)
    guests: list[Guest] = []
    for _ in range(300):
        if chance.random() < 0.5 or not guests:
            guests.append(Guest(room, chance.randint(1, 25)))
        elif chance.random() < 0.7:
            chance.choice(guests).leave()
        else:
            chance.choice(guests).task.cancel()
        if chance.random() < 0.7:
            await asyncio.sleep(0)
        inside = [guest.weight for guest in guests if guest.inside]
        assert sum(inside) <= 20 or len(inside) == 1
    for guest in guests:
        guest.leave()
    await asyncio.gather(*(guest.task for guest in guests), return_exceptions=True)
    assert room.held == 0
