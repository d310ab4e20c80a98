"""What a merge makes of writes that fall between its steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.index.tree.conftest import LEAST, Room
from twinlens.index.tree import merge


# The segment is written; it is opened; it follows what changed meanwhile, for the first time.
@pytest.mark.parametrize("step", ["write_segment", "open_main", "catch_up"])
def test_whatever_changes_between_two_steps_of_a_merge_is_as_it_was_left(
    room: Room, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    room.upsert(*range(3 * LEAST))

    def first() -> None:
        room.upsert(1, 100, 101, 102)
        room.delete(2, 102)

    def second() -> None:
        room.upsert(3, 2, 103)
        room.delete(1, 101)

    writes = [first, second]
    write_after("write_segment", [] if step == "write_segment" else writes[:1], monkeypatch)
    write_after(step, writes if step == "write_segment" else writes[1:], monkeypatch)
    room.collection.merge()
    room.check()
    room.reopen()
    room.check()


def write_after(step: str, writes: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the next merge do all of the writes once a step of it was done for the first time."""
    real = getattr(merge, step)

    def then_write(*given: object, **options: object) -> object:
        found = real(*given, **options)
        while writes:
            writes.pop(0)()
        return found

    monkeypatch.setattr(merge, step, then_write)
