"""What is tried again and what never is, on a server that fails as it is told to."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import Default
from hypothesis import given
from hypothesis import strategies as st

from tests.support.failing_server import FailingServer, Refusal, failing_server, retry_info, serving
from twinlens.client import NewItem, TwinlensError
from twinlens.client.retries import SAFE, asked_wait_s, wait_s
from twinlens.server.grpc_server import SERVICES

AWAY = Refusal(grpc.StatusCode.UNAVAILABLE)
FULL = Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED)
NOT_TAKEN = Refusal(grpc.StatusCode.CANCELLED, "CANCELLED")  # gRPC's own, of a call that came as the server stopped


@pytest.fixture
def failing() -> Iterator[tuple[FailingServer, str]]:
    servicer = failing_server()
    with serving(servicer, "127.0.0.1:0") as port:
        yield servicer, f"127.0.0.1:{port}"


@pytest.mark.parametrize("refusal", [AWAY, FULL, NOT_TAKEN])
def test_a_read_is_tried_again_where_the_server_is_away_or_full(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str], refusal: Refusal
) -> None:
    servicer, target = failing
    servicer.refusals = [refusal]
    with open_client(target) as client:
        assert client.embed_texts(["a"]).vectors.tolist() == [[1.0]]
    assert servicer.calls == 2


def test_a_request_bigger_than_grpc_would_keep_is_tried_again_too(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str]
) -> None:
    servicer, target = failing
    servicer.refusals = [AWAY]
    with open_client(target) as client:
        assert client.embed_images([b"x" * 3_000_000]).vectors.tolist() == [[1.0]]
    assert servicer.calls == 2


def test_trying_again_ends(open_client: Callable[..., Any], failing: tuple[FailingServer, str]) -> None:
    servicer, target = failing
    servicer.refusals = [FULL] * 10
    with open_client(target) as client, pytest.raises(TwinlensError) as caught:
        client.embed_texts(["a"])
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert caught.value.message == "told to"
    assert servicer.calls == 4


def test_a_client_that_is_told_to_tries_once(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str]
) -> None:
    servicer, target = failing
    servicer.refusals = [FULL]
    with open_client(target, attempts=1) as client, pytest.raises(TwinlensError):
        client.embed_texts(["a"])
    assert servicer.calls == 1


@pytest.mark.parametrize("status", [grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT])
def test_what_would_fail_again_is_not_tried_again(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str], status: grpc.StatusCode
) -> None:
    servicer, target = failing
    servicer.refusals = [Refusal(status)]
    with open_client(target) as client, pytest.raises(TwinlensError) as caught:
        client.embed_texts(["a"])
    assert caught.value.code == status.name
    assert servicer.calls == 1


@pytest.mark.parametrize("refusal", [AWAY, FULL, retry_info(0, grpc.StatusCode.UNAVAILABLE)])
def test_a_write_is_not_tried_again_where_it_may_have_done_something(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str], refusal: Refusal
) -> None:
    servicer, target = failing
    servicer.refusals = [refusal]
    with open_client(target) as client, pytest.raises(TwinlensError) as caught:
        client.upsert("photos", [NewItem(caption="a")])
    assert caught.value.code == refusal.status.name
    assert servicer.calls == 1


def test_a_write_that_came_as_the_server_stopped_says_so(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str]
) -> None:
    servicer, target = failing
    servicer.refusals = [NOT_TAKEN]
    with open_client(target) as client, pytest.raises(TwinlensError, match="is stopping") as caught:
        client.upsert("photos", [NewItem(caption="a")])
    assert caught.value.code == "UNAVAILABLE"
    assert servicer.calls == 1


def test_a_write_is_tried_again_where_the_server_was_full_and_said_when_to_come_back(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str]
) -> None:
    servicer, target = failing
    servicer.refusals = [retry_info(0.01), retry_info(0.01)]
    with open_client(target) as client:
        assert client.upsert("photos", [NewItem(caption="a")]).stored == 1
    assert servicer.calls == 3


def test_no_attempt_comes_sooner_than_the_server_asks_for(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str]
) -> None:
    servicer, target = failing
    servicer.refusals = [retry_info(0.4)]
    with open_client(target) as client:
        began_s = time.monotonic()
        client.embed_texts(["a"])
        assert time.monotonic() - began_s >= 0.4


@pytest.mark.parametrize("asked_s", [3.0, 3600.0])
def test_a_wait_that_is_too_long_is_told_instead(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str], asked_s: float
) -> None:
    """Longer than the deadline, or than anyone waits for an answer."""
    servicer, target = failing
    servicer.refusals = [retry_info(asked_s)]
    with open_client(target, timeout_s=2.0) as client, pytest.raises(TwinlensError) as caught:
        client.embed_texts(["a"])
    assert caught.value.retry_after_s == asked_s
    assert servicer.calls == 1


def test_a_message_that_is_too_large_is_not_sent_again(open_client: Callable[..., Any]) -> None:
    servicer = failing_server()
    small = [("grpc.max_receive_message_length", 1000)]
    with (
        serving(servicer, "127.0.0.1:0", options=small) as port,
        open_client(f"127.0.0.1:{port}") as client,
        pytest.raises(TwinlensError, match="larger than max") as caught,
    ):
        client.embed_images([b"x" * 2000])
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    too_large = caught.value.message
    assert wait_s(grpc.StatusCode.RESOURCE_EXHAUSTED, too_large, (), safe=True, made=1) is None
    # And what the client itself refuses to send:
    options = [("grpc.max_send_message_length", 1000)]
    with (
        serving(servicer, "127.0.0.1:0") as port,
        open_client(f"127.0.0.1:{port}", options=options) as client,
        pytest.raises(TwinlensError, match="larger than max"),
    ):
        client.embed_images([b"x" * 2000])


def test_a_stream_is_asked_for_again_only_while_nothing_of_it_arrived(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str]
) -> None:
    servicer, target = failing
    with open_client(target) as client:
        servicer.refusals = [AWAY]
        assert list(client.check_collection("photos")) == []
        assert servicer.calls == 2
        servicer.refusals, servicer.messages_first = [AWAY], 2
        with pytest.raises(TwinlensError) as caught:
            list(client.check_collection("photos"))
    assert caught.value.code == "UNAVAILABLE"
    assert servicer.calls == 3


def test_what_a_server_says_that_ends_a_call_while_it_is_sent_something_is_not_hidden(
    open_client: Callable[..., Any], target: str
) -> None:
    """The server ends these calls when it has read the first of several large messages."""
    items = [NewItem(image=b"x" * 400_000)] * 60
    with open_client(target) as client:
        for _ in range(8):
            with pytest.raises(TwinlensError) as caught:
                client.upsert("nowhere", items)
            assert caught.value.code == "NOT_FOUND"


def test_closing_ends_the_wait_for_another_attempt(failing: tuple[FailingServer, str]) -> None:
    from twinlens.client import Client

    servicer, target = failing
    servicer.refusals = [retry_info(29.0)]
    with Client(target) as client, ThreadPoolExecutor(max_workers=1) as pool:
        answer = pool.submit(client.embed_texts, ["a"])
        while not servicer.calls:
            time.sleep(0.001)
        client.close()
        with pytest.raises(TwinlensError) as caught:
            answer.result(timeout=20)
    assert caught.value.code == "CANCELLED"


def test_every_method_is_either_one_that_changes_something_or_tried_again() -> None:
    changing = ("Create", "Delete", "Upsert", "Merge", "Backup", "Restore", "Drop", "Put")
    methods = {
        (_short(service), method.name)
        for service in SERVICES
        for method in Default().FindServiceByName(service).methods
        if not method.name.startswith(changing)
    }
    assert methods == SAFE


def _short(service: str) -> str:
    name = service.rpartition(".")[2].removesuffix("Service")
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_a_method_the_server_does_not_have_is_named(
    open_client: Callable[..., Any], failing: tuple[FailingServer, str]
) -> None:
    _, target = failing
    with open_client(target) as client, pytest.raises(TwinlensError) as caught:
        client.models()
    assert caught.value.code == "UNIMPLEMENTED"
    assert target in caught.value.message


def test_a_client_that_is_told_to_waits_for_a_server_that_comes_later(
    open_client: Callable[..., Any], tmp_path: Path
) -> None:
    target = f"unix:{tmp_path}/socket"
    with open_client(target, wait_for_ready=True) as client, ThreadPoolExecutor(max_workers=1) as pool:
        answer = pool.submit(client.embed_texts, ["a"])
        with serving(failing_server(), target):
            assert answer.result().vectors.tolist() == [[1.0]]


@given(made=st.integers(1, 20), drawn=st.floats(0, 1), asked_s=st.none() | st.floats(0, 30))
def test_waits_are_random_grow_are_bounded_and_never_shorter_than_asked_for(
    made: int, drawn: float, asked_s: float | None
) -> None:
    trailing = () if asked_s is None else (("grpc-retry-pushback-ms", str(round(asked_s * 1000))),)
    found = wait_s(grpc.StatusCode.UNAVAILABLE, "", trailing, safe=True, made=made, drawn=drawn)
    assert found is not None
    spread_s = found - (asked_s or 0.0)
    assert 0.05 - 1e-3 <= spread_s <= 3.0 + 1e-3
    later = wait_s(grpc.StatusCode.UNAVAILABLE, "", trailing, safe=True, made=made + 1, drawn=drawn)
    assert later is not None
    assert later >= found


@pytest.mark.parametrize("pushback", ["-1", "soon", "", "99999999"])
def test_a_server_that_forbids_it_or_asks_for_hours_is_not_asked_again(pushback: str) -> None:
    trailing = (("grpc-retry-pushback-ms", pushback),)
    for status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
        assert wait_s(status, "", trailing, safe=True, made=1) is None


def test_what_is_no_hint_is_passed_over() -> None:
    broken = (("grpc-status-details-bin", b"\xff\xff no message"), ("other", "7"))
    assert asked_wait_s(broken) is None
    assert asked_wait_s(None) is None
    assert asked_wait_s(retry_info(1.5).trailing) == 1.5
    both = (*retry_info(1.5).trailing, ("grpc-retry-pushback-ms", "2500"))
    assert asked_wait_s(both) == 2.5
