from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.server.running import run_server
from tests.server.watched import PATIENCE_S
from tests.support.fake_encoder import FakeEncoder
from tests.support.scraped import Scraped
from twinlens.server.core.active import StartError
from twinlens.server.core.loop_delay import LoopDelay
from twinlens.server.metrics_http import MetricsServer
from twinlens.server.monitored import serve_metrics


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("seen", "What was seen.", ("what",), registry=registry).labels('a "quoted"\nname').inc(3)
    return registry


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Iterator[MetricsServer]:
    server = MetricsServer(registry, "127.0.0.1", 0)
    yield server
    server.close()


def get(
    url: str, path: str = "/metrics", method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_metrics_are_told_in_the_format_prometheus_asks_for(metrics: MetricsServer) -> None:
    answer, body = get(metrics.url)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert Scraped(body.decode()).sum("seen_total", what='a "quoted"\nname') == 3
    answer, body = get(metrics.url, Accept="application/openmetrics-text;version=1.0.0")
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    families = text_string_to_metric_families(body.decode())  # type: ignore[no-untyped-call]  # the library's
    assert "seen" in {family.name for family in families}


def test_metrics_are_compressed_for_whoever_takes_that(metrics: MetricsServer) -> None:
    answer, body = get(metrics.url, Accept_Encoding="gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert b"seen_total" in gzip.decompress(body)


def test_nothing_else_is_there_and_nothing_is_told_of_what_runs(metrics: MetricsServer) -> None:
    answer, body = get(metrics.url, "/")
    assert (answer.status, body) == (404, b"metrics are at /metrics\n")
    assert answer.headers["Server"].strip() == "twinlens"
    assert get(metrics.url, method="HEAD")[1] == b""
    assert get(metrics.url, method="POST")[0].status == 501


def test_a_metric_that_cannot_be_read_is_an_error_without_its_words(
    metrics: MetricsServer, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def collect(self) -> Iterator[GaugeMetricFamily]:
            raise OSError("secret /path/of/the/server")

    registry.register(Broken())
    answer, body = get(metrics.url)
    assert answer.status == 500
    assert b"secret" not in body
    assert "secret" in caplog.text


def test_connections_that_say_nothing_take_no_more_than_their_few_places(metrics: MetricsServer) -> None:
    parts = urlsplit(metrics.url)
    address = (parts.hostname, parts.port)
    silent = [socket.create_connection(address, timeout=PATIENCE_S) for _ in range(12)]
    try:
        for each in silent[:4]:
            assert each.recv(1) == b""  # closed for one that came later
        silent[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[-1].recv(1)
    finally:
        for each in silent:
            each.close()


def test_who_asks_is_answered_however_many_others_do_not_come_to_an_end(metrics: MetricsServer) -> None:
    parts = urlsplit(metrics.url)
    address = (parts.hostname, parts.port)
    endless = [socket.create_connection(address, timeout=PATIENCE_S) for _ in range(8)]
    try:
        for each in endless:
            each.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        for _ in range(3):
            for each in endless:  # each is heard of well within any patience
                with contextlib.suppress(OSError):
                    each.sendall(b"y")
            assert get(metrics.url)[0].status == 200
    finally:
        for each in endless:
            each.close()


def test_an_address_that_cannot_be_used_is_one_clear_line(metrics: MetricsServer, registry: CollectorRegistry) -> None:
    port = urlsplit(metrics.url).port
    assert port is not None
    with pytest.raises(
        StartError, match=rf"^metrics cannot be served on 127.0.0.1:{port}: the port is in use;.*-port 0"
    ):
        MetricsServer(registry, "127.0.0.1", port)
    with pytest.raises(StartError, match="the host is not known"):
        MetricsServer(registry, "no.such.host.invalid", 0)


def test_it_also_listens_on_ipv6(registry: CollectorRegistry) -> None:
    try:
        server = MetricsServer(registry, "::1", 0)
    except StartError:
        pytest.skip("this machine has no IPv6")
    try:
        assert server.url.startswith("http://[::1]:")
        assert get(server.url)[0].status == 200
    finally:
        server.close()


async def read(url: str) -> Scraped:
    _, body = await asyncio.to_thread(get, url)
    return Scraped(body.decode())


async def test_a_server_tells_what_it_serves_and_what_its_process_takes(data: Path) -> None:
    async with run_server(data, FakeEncoder(name="ours", version="7")) as served:
        metrics = serve_metrics(served.app, "127.0.0.1", 0)
        try:
            await served.embed("a text")
            now = await read(metrics.url)
        finally:
            metrics.close()
    (model,) = now.samples("twinlens_model_info")
    assert (model.labels["name"], model.labels["version"]) == ("ours", "7")
    assert model.labels["space_id"] == served.app.engine.manifest.space_id
    assert now.sum("twinlens_build_info") == 1
    assert now.sum("grpc_server_started_total", grpc_method="Embed") == 1
    assert now.sum("process_resident_memory_bytes") > 0
    assert 0 <= now.sum("twinlens_event_loop_delay_seconds") < 2
    assert not [name for name in now.labels() if name.endswith("_created")]


async def test_metrics_answer_while_the_event_loop_is_held_up(registry: CollectorRegistry) -> None:
    registry.register(LoopDelay(asyncio.get_running_loop(), wait_s=0.05))
    metrics = MetricsServer(registry, "127.0.0.1", 0)
    answered = threading.Event()
    delays: list[float] = []

    def scrape() -> None:
        delays.append(Scraped(get(metrics.url)[1].decode()).sum("twinlens_event_loop_delay_seconds"))
        answered.set()

    try:
        threading.Thread(target=scrape, daemon=True).start()
        assert answered.wait(PATIENCE_S)  # on the event loop, which does nothing else meanwhile
    finally:
        metrics.close()
    assert delays == [0.05]


async def test_what_was_counted_is_told_until_the_very_end(data: Path) -> None:
    async with run_server(data, FakeEncoder()) as served:
        metrics = serve_metrics(served.app, "127.0.0.1", 0)
        await served.create()
        await read(metrics.url)
    try:
        now = await read(metrics.url)  # the collections are closed
    finally:
        metrics.close()
    assert now.sum("grpc_server_handled_total", grpc_method="CreateCollection") == 1
    assert now.sum("twinlens_collections", state="sound") == 1
