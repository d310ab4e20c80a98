"""What callers without a token can keep from those who have one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.server.access.secured import Secured, bearer, secured, token_in
from tests.server.running import embed_request, refusal
from tests.server.watched import PATIENCE_S, until
from tests.support.chaos.raw_http2 import RawCaller, message, raw_caller
from twinlens.server import grpc_server
from twinlens.server.services import open_calls
from twinlens.v1 import embedding_pb2_grpc

HEALTH = "/grpc.health.v1.Health/"
MANY = 40


@pytest.fixture
def token(tmp_path: Path) -> str:
    return token_in(tmp_path / "tokens.toml", "search", "read")


@pytest_asyncio.fixture
async def server(data: Path, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Secured]:
    """With room for far fewer calls than there are strangers."""
    monkeypatch.setattr(grpc_server, "_CALLS_WITHOUT_ITEMS", 4)
    monkeypatch.setattr(grpc_server, "_OTHER_CALLS", 4)
    monkeypatch.setattr(open_calls, "_LASTING", 4)
    monkeypatch.setattr(open_calls, "_SHORT", 4)
    async with secured(data, tokens=tmp_path / "tokens.toml", max_items_in_flight=8) as running:
        yield running


@pytest_asyncio.fixture
async def stranger(server: Secured) -> AsyncIterator[RawCaller]:
    async with raw_caller(server.address) as caller:
        caller.greet()
        yield caller


@pytest_asyncio.fixture
async def channel(server: Secured) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address, options=[("grpc.enable_retries", 0)]) as opened:
        yield opened


def embed(channel: grpc.aio.Channel, token: str) -> Any:
    return embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed(embed_request("red"), metadata=bearer(token))


async def test_watching_strangers_keep_nobody_out_and_no_probe_from_asking(
    server: Secured, stranger: RawCaller, channel: grpc.aio.Channel, token: str
) -> None:
    for _ in range(MANY):
        stranger.send(stranger.begin(HEALTH + "Watch"), message(b""), end=True)
    await stranger.drain()
    await until(lambda: server.refused("calls") == MANY - 4)
    assert len((await embed(channel, token)).results) == 1
    health = health_pb2_grpc.HealthStub(channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1
    code, _ = await refusal(health.Watch(health_pb2.HealthCheckRequest()).read())
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_strangers_who_never_send_their_request_keep_nobody_out(
    server: Secured, stranger: RawCaller, channel: grpc.aio.Channel, token: str
) -> None:
    for method in ("Check", "Watch"):
        for _ in range(MANY):
            stranger.begin(HEALTH + method)
    await stranger.drain()
    await until(lambda: server.refused("calls") == 2 * (MANY - 4))
    assert len((await embed(channel, token)).results) == 1


async def test_a_stranger_is_let_go_whose_request_does_not_come(
    server: Secured,
    channel: grpc.aio.Channel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(open_calls, "_PATIENCE_S", 0.01)
    never = asyncio.Event()

    async def nothing() -> AsyncIterator[bytes]:
        await never.wait()
        yield b""

    check: Any = channel.stream_unary(HEALTH + "Check")
    for _ in range(8):  # more than there are places
        code, message = await refusal(check(nothing(), timeout=PATIENCE_S))
        assert (code, message) == (grpc.StatusCode.DEADLINE_EXCEEDED, "no request came within 0.01 s")
    code, message = await refusal(check(iter([])))
    assert (code, message) == (grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a request")
    health = health_pb2_grpc.HealthStub(channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1
    code, _ = await refusal(health.Check(health_pb2.HealthCheckRequest(service="nothing")))
    assert code is grpc.StatusCode.NOT_FOUND
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
