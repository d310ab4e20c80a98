"""Filters that look at every item end early once nobody waits, and never pass for damage."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.filtered_search import fill, search
from twinlens.index.collection import Collection
from twinlens.index.errors import Abandoned, CollectionNotFound
from twinlens.index.interruption import abandonable, is_abandoned

CALLS: dict[str, Callable[[Collection], Any]] = {
    "count": lambda c: c.count("odd:true"),
    "list": lambda c: c.list(filter="odd:true"),
    "search": lambda c: search(c, "odd:true"),
    "delete": lambda c: c.delete(filter="odd:true"),
    "export": lambda c: list(c.export(filter="odd:true").pages),
}


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlens.index.interruption._STEPS_BETWEEN_LOOKS", 1)


@pytest.mark.usefixtures("looking")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_nobody_waits_for_ends_early(collection: Collection, call: Callable[[Collection], Any]) -> None:
    fill(collection)
    with abandonable(lambda: True), pytest.raises(Abandoned, match="nobody waits"):
        call(collection)
    assert collection.count() == 40
    assert call(collection)


@pytest.mark.usefixtures("looking")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_collection_that_is_being_closed_waits_for_no_filter(
    collection: Collection, call: Callable[[Collection], Any]
) -> None:
    fill(collection)
    collection._state.closing.set()
    with pytest.raises(CollectionNotFound, match="is being closed"):
        call(collection)
    collection._state.closing.clear()
    assert call(collection)


def test_each_thread_knows_only_who_waits_for_it() -> None:
    seen: list[bool] = []
    with abandonable(lambda: True):
        thread = threading.Thread(target=lambda: seen.append(is_abandoned()))
        thread.start()
        thread.join()
        assert is_abandoned()
    assert not is_abandoned()
    assert seen == [False]
