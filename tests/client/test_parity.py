"""The blocking and the asynchronous client are the same, method by method."""

from __future__ import annotations

import inspect

import pytest

from twinlens.client import AsyncClient, Client


def public(of: type) -> set[str]:
    return {name for name, value in inspect.getmembers(of, callable) if not name.startswith("_")}


def test_both_have_the_same_methods() -> None:
    assert public(Client) == public(AsyncClient)


@pytest.mark.parametrize("name", sorted(public(Client)))
def test_methods_take_the_same_arguments_and_are_described(name: str) -> None:
    one, other = getattr(Client, name), getattr(AsyncClient, name)
    assert inspect.signature(one).parameters == inspect.signature(other).parameters
    assert inspect.getdoc(one)
    assert inspect.getdoc(other)
