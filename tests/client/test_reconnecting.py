"""One connection for all calls, and another one when the server is another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.failing_server import Refusal, failing_server, serving
from twinlens.client import Client, TwinlensError


def test_threads_share_one_connection() -> None:
    servicer = failing_server()
    with (
        serving(servicer, "127.0.0.1:0") as port,
        Client(f"127.0.0.1:{port}") as client,
        ThreadPoolExecutor(max_workers=8) as pool,
    ):
        answers = [pool.submit(client.embed_texts, ["a"]) for _ in range(40)]
        assert all(len(answer.result().vectors) == 1 for answer in answers)
    assert servicer.calls == 40
    assert len(servicer.peers) == 1


def test_a_server_that_was_restarted_is_found_again_without_a_new_client(
    open_client: Callable[..., Any], tmp_path: Path
) -> None:
    target = f"unix:{tmp_path}/socket"
    with open_client(target, wait_for_ready=True, timeout_s=30) as client:
        for _ in range(3):
            with serving(failing_server(), target):
                assert len(client.embed_texts(["a"]).vectors) == 1


def test_while_the_server_is_away_calls_fail_soon_and_later_ones_do_not(
    open_client: Callable[..., Any], tmp_path: Path
) -> None:
    target = f"unix:{tmp_path}/socket"
    with open_client(target) as client:
        with serving(failing_server(), target):
            client.embed_texts(["a"])
        with pytest.raises(TwinlensError) as caught:
            client.embed_texts(["a"])
        assert caught.value.code == "UNAVAILABLE"
        with serving(failing_server(), target):
            client.wait_ready(timeout_s=20)
            assert len(client.embed_texts(["a"]).vectors) == 1


def test_calls_are_spread_over_replicas_and_what_one_refuses_another_answers(open_client: Callable[..., Any]) -> None:
    one, other = failing_server(), failing_server()
    with serving(one, "127.0.0.1:0") as first, serving(other, "127.0.0.1:0") as second:
        target = f"ipv4:127.0.0.1:{first},127.0.0.1:{second}"
        with open_client(target, options=[("grpc.lb_policy_name", "round_robin")]) as client:
            # Which is connected to first takes what comes until the other one is.
            while not (one.calls and other.calls):
                client.embed_texts(["a"])
            # An attempt at one that refuses is followed by one at the next.
            other.refusals = [Refusal(grpc.StatusCode.UNAVAILABLE)] * 4
            for _ in range(8):
                assert len(client.embed_texts(["a"]).vectors) == 1
            assert not other.refusals
