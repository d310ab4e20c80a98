"""The blocking and the asynchronous client are the same, method by method."""

from __future__ import annotations

import inspect
import re

import pytest

from twinlens.client import AsyncClient, Client


def public(of: type) -> set[str]:
    return {name for name, value in inspect.getmembers(of, callable) if not name.startswith("_")}


def test_both_have_the_same_methods() -> None:
    assert public(Client) == public(AsyncClient)


def test_both_are_made_of_the_same_and_say_what_each_is() -> None:
    given = inspect.signature(Client).parameters
    assert given == inspect.signature(AsyncClient).parameters
    for kind in (Client, AsyncClient):
        arguments = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]
        described = re.findall(r"^    (\w+): ", arguments, re.MULTILINE)
        assert described == list(given)


@pytest.mark.parametrize("name", sorted(public(Client)))
def test_methods_take_the_same_arguments_and_are_described(name: str) -> None:
    one, other = getattr(Client, name), getattr(AsyncClient, name)
    assert inspect.signature(one).parameters == inspect.signature(other).parameters
    assert inspect.getdoc(one)
    assert inspect.getdoc(other)


@pytest.mark.parametrize("name", sorted(public(Client)))
def test_methods_return_the_same_and_streams_are_iterated_over_in_both(name: str) -> None:
    one, other = getattr(Client, name), getattr(AsyncClient, name)
    returned, awaited = (inspect.signature(each).return_annotation for each in (one, other))
    if returned.startswith("Iterator["):
        assert awaited == f"Async{returned}"
        assert not inspect.iscoroutinefunction(other)
    else:
        assert awaited == returned
        assert inspect.iscoroutinefunction(other)


@pytest.mark.parametrize("name", sorted(public(Client)))
def test_both_explain_the_arguments_or_point_to_where_they_are_explained(name: str) -> None:
    """Of methods with more than two arguments."""
    takes = [each for each in inspect.signature(getattr(Client, name)).parameters if each != "self"]
    text = inspect.getdoc(getattr(Client, name)) or ""
    arguments = text.partition("Args:\n")[2].partition("\n\n")[0]
    explained = re.findall(r"^    (\w+): ", arguments, re.MULTILINE)
    if len(takes) > 2:
        assert [each for each in explained if each in takes] == takes
