from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.server.running import Running, run_server
from tests.server.watched import PATIENCE_S, WatchedEncoder
from tests.support.chaos.raw_http2 import message, raw_caller
from twinlens.server.grpc_server import SERVICES

RESPONSE = health_pb2.HealthCheckResponse


@pytest.mark.parametrize("service", ["", *SERVICES])
async def test_a_watch_tells_the_status_now_and_every_change(service: str, data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest(service=service))
        assert (await watch.read()).status == RESPONSE.SERVING
        encoder.broken = RuntimeError("gone")
        assert not await served.server.health.check()
        assert (await watch.read()).status == RESPONSE.NOT_SERVING
        encoder.broken = None
        assert await served.server.health.check()
        assert (await watch.read()).status == RESPONSE.SERVING
        watch.cancel()


async def test_a_watch_of_an_unknown_service_says_so_and_stays_open(served: Running) -> None:
    stub = health_pb2_grpc.HealthStub(served.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="twinlens.v1.NoService"))
    assert (await watch.read()).status == RESPONSE.SERVICE_UNKNOWN
    assert not watch.done()
    watch.cancel()


async def test_all_services_are_listed(served: Running) -> None:
    reply = await health_pb2_grpc.HealthStub(served.channel).List(health_pb2.HealthListRequest())
    assert {name: status.status for name, status in reply.statuses.items()} == dict.fromkeys(
        ("", *SERVICES), RESPONSE.SERVING
    )


async def test_watchers_are_told_of_the_end_and_do_not_hold_it_up(data: Path) -> None:
    async with run_server(data, WatchedEncoder()) as served:
        stub = health_pb2_grpc.HealthStub(served.channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest(service=name)) for name in ("", "no.such.Service")]
        first = [(await watch.read()).status for watch in watches]
        assert first == [RESPONSE.SERVING, RESPONSE.SERVICE_UNKNOWN]
        async with asyncio.timeout(PATIENCE_S):
            await served.server.stop(grace_s=3600.0)
        assert (await watches[0].read()).status == RESPONSE.NOT_SERVING
        assert await watches[0].read() is grpc.aio.EOF


async def test_a_watcher_who_reads_nothing_holds_up_nobody(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served, raw_caller(served.server.address) as deaf:
        deaf.greet()
        deaf.send(deaf.begin("/grpc.health.v1.Health/Watch"), message(b""), end=True)
        await deaf.drain()
        stub = health_pb2_grpc.HealthStub(served.channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        for _ in range(3):
            encoder.broken = RuntimeError("gone")
            await served.server.health.check()
            assert (await watch.read()).status == RESPONSE.NOT_SERVING
            encoder.broken = None
            await served.server.health.check()
            assert (await watch.read()).status == RESPONSE.SERVING
        watch.cancel()
