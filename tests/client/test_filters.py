"""Filters from both clients and from the commands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.command_runs import Ran
from tests.support.pictures import solid
from twinlens.client import Client, NewItem, TwinlensError
from twinlens.client.commands.filter_errors import _pointed

_numbers = itertools.count()


@pytest.fixture
def photos(target: str) -> Iterator[str]:
    """Four coloured pictures, numbered by hue."""
    name = f"filtered-{next(_numbers)}"
    items = [
        NewItem(id=colour, image=solid(colour), metadata={"hue": i, "warm": colour in {"red", "yellow"}})
        for i, colour in enumerate(("red", "green", "blue", "yellow"))
    ]
    with Client(target) as client:
        client.create_collection(name)
        assert client.upsert(name, items).stored == 4
        yield name
        client.delete_collection(name)


def test_both_clients_search_list_count_and_delete_by_filter(client: Any, photos: str) -> None:
    assert [hit.id for hit in client.search(photos, text="green", filter="warm = true AND hue > 0")] == ["yellow"]
    (result,) = client.search_batch(photos, ["green"], filter="hue = 2")
    assert [hit.id for hit in result.hits] == ["blue"]
    assert [item.id for item in client.list_items(photos, filter="warm = false", page_size=1)] == ["blue", "green"]
    assert client.count_items(photos, "hue >= 1") == 3
    assert client.count_items(photos) == 4
    assert client.delete_items(photos, filter="hue >= 2") == 2
    assert client.count_items(photos) == 2


def test_both_clients_refuse_filters_that_cannot_be_read(client: Any, photos: str) -> None:
    for call in (
        lambda: client.search(photos, text="green", filter="hue = "),
        lambda: list(client.list_items(photos, filter="hue = ")),
        lambda: client.count_items(photos, "hue = "),
        lambda: client.delete_items(photos, filter="hue = "),
    ):
        with pytest.raises(TwinlensError, match=r"^filter, column 6: expected a value") as caught:
            call()
        assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(TwinlensError, match="not by both"):
        client.delete_items(photos, ["red"], filter="hue = 1")
    with pytest.raises(TwinlensError, match="surrogate"):
        client.count_items(photos, "a = \ud800")


def test_commands_take_filters(run: Callable[..., Ran], target: str, photos: str) -> None:
    at = ("--server", target)
    found = run("search", "green", "-c", photos, "--filter", "warm = true", "--json", *at)
    assert sorted(hit["id"] for hit in found.json["hits"]) == ["red", "yellow"]
    listed = run("collections", "items", photos, "--filter", "hue < 2", "--json", *at)
    assert [line.split('"id": "')[1].split('"')[0] for line in listed.out.splitlines()] == ["green", "red"]
    assert run("collections", "count", photos, *at).out == "4\n"
    assert run("collections", "count", photos, "--filter", "warm = true", *at).out == "2\n"


def test_items_are_removed_by_filter_only_after_a_yes(run: Callable[..., Ran], target: str, photos: str) -> None:
    at = ("--server", target)
    remove = ("collections", "remove", photos)
    assert "2 items match: say --yes" in run(*remove, "--filter", "warm = true", *at).failed(2)
    assert "one of both" in run(*remove, *at).failed(2)
    assert "one of both" in run(*remove, "red", "--filter", "warm = true", *at).failed(2)
    done = run(*remove, "--filter", "warm = true", "--yes", *at)
    assert (done.code, done.out) == (0, "deleted 2 items\n")
    assert run("collections", "count", photos, *at).out == "2\n"


def test_a_caret_shows_what_is_wrong_with_a_filter(run: Callable[..., Ran], target: str, photos: str) -> None:
    for command in (
        ("search", "green", "-c", photos),
        ("collections", "items", photos),
        ("collections", "count", photos),
        ("collections", "remove", photos, "--yes"),
    ):
        failed = run(*command, "--filter", "hue == 2", "--server", target)
        assert failed.code == 1
        lines = failed.err.splitlines()
        assert lines[:2] == ["  hue == 2", "       ^"]
        assert "filter, column 6: expected a value" in lines[2]
        assert len(lines) == 3


def test_the_caret_stands_under_its_character_in_long_filters_too() -> None:
    for length in (1, 20, 76, 77, 200, 1000):
        for column in {1, length // 2 + 1, length, length + 1}:
            filter_ = "".join(chr(ord("a") + i % 26) for i in range(length))
            shown, caret = _pointed(filter_, column)
            assert len(shown) <= 78
            assert len(caret) <= 79
            under = shown[len(caret) - 1 : len(caret)]
            assert under == filter_[column - 1 : column]
    assert _pointed("a\nb =", 6) == ("  a b =", "       ^")
