"""Servers that are not there, say nothing, or are addressed wrongly, by both clients."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from twinlens.client import TwinlensError


def test_a_server_that_is_not_there_is_reported_in_one_line(open_client: Callable[..., Any]) -> None:
    with open_client("127.0.0.1:1") as client, pytest.raises(TwinlensError) as caught:
        client.list_collections()
    assert caught.value.code == "UNAVAILABLE"
    assert str(caught.value) == "no server answers at 127.0.0.1:1 (Connection refused)"


def test_waiting_for_a_server_that_does_not_come_ends(open_client: Callable[..., Any]) -> None:
    with open_client("127.0.0.1:1") as client, pytest.raises(TwinlensError) as caught:
        client.wait_ready(timeout_s=0.05)
    assert caught.value.code == "UNAVAILABLE"
    assert str(caught.value) == "no server answers at 127.0.0.1:1 within 0.05 s (Connection refused)"


def test_waiting_for_a_server_that_takes_connections_and_says_nothing_ends(open_client: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with open_client(target) as client, pytest.raises(TwinlensError, match=r"within 0\.1 s"):
            client.wait_ready(timeout_s=0.1)


def test_waiting_for_a_server_that_is_there_returns(client: Any) -> None:
    client.wait_ready()


def test_a_call_that_takes_too_long_ends(open_client: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never says a word
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with open_client(target, timeout_s=0.1) as client, pytest.raises(TwinlensError) as caught:
            client.embed_texts(["red"])
    assert caught.value.code == "DEADLINE_EXCEEDED"
    assert str(caught.value) == f"{target} did not answer within 0.1 s"


def test_a_closed_client_says_so(open_client: Callable[..., Any], target: str) -> None:
    with open_client(target) as client:
        client.close()
        with pytest.raises(TwinlensError) as caught:
            client.models()
    assert caught.value.code == "CANCELLED"


@pytest.mark.parametrize("target", ["nohost", "", "host:", ":5", "host:port", "http://host:1", "host:70000"])
def test_what_is_no_address_is_refused_at_once(open_client: Callable[..., Any], target: str) -> None:
    with pytest.raises(TwinlensError) as caught:
        open_client(target)
    assert caught.value.code == "INVALID_ARGUMENT"
