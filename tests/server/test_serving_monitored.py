"""A server process with everything on that watches it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.server.running import embed_request
from tests.server.watched import PATIENCE_S
from tests.support.scraped import Scraped
from twinlens.server.core.active import StartError
from twinlens.server.serve import serve
from twinlens.server.settings import Settings
from twinlens.v1 import embedding_pb2_grpc

SCRIPT = Path(__file__).with_name("serve_fake.py")


@contextmanager
def process(
    tmp_path: Path, environment: dict[str, str] | None = None, **settings: str
) -> Iterator[subprocess.Popen[str]]:
    variables = {f"TWINLENS_{name.upper()}": value for name, value in settings.items()} | (environment or {})
    command = [sys.executable, str(SCRIPT), str(tmp_path / "data"), str(tmp_path / "port")]
    with subprocess.Popen(command, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def lines(started: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert started.stderr is not None
    for line in started.stderr:
        yield json.loads(line)


def said(told: Iterator[dict[str, Any]], text: str) -> dict[str, Any]:
    for line in told:
        if text in line["message"]:
            return line
    pytest.fail(f"the server ended without saying {text!r}")


def test_every_line_of_a_json_log_is_an_object_from_the_start_to_the_end(tmp_path: Path) -> None:
    with process(tmp_path, log_format="json", metrics_port="0") as started:
        told = lines(started)
        url = said(told, "metrics on http://")["message"].split()[-1]
        said(told, "serving fake/1 on 127.0.0.1:")
        with grpc.insecure_channel(f"127.0.0.1:{(tmp_path / 'port').read_text().strip()}") as channel:
            embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed(embed_request("a text"), timeout=PATIENCE_S)
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310 - our own
            now = Scraped(answer.read().decode())
        assert now.sum("grpc_server_handled_total", grpc_method="Embed", grpc_code="OK") == 1
        assert now.sum("twinlens_healthy") == 1
        started.send_signal(signal.SIGTERM)
        calls = [line for line in told if line["logger"] == "twinlens.access"]
        assert started.wait(PATIENCE_S) == 0
    assert [call["method"] for call in calls] == ["twinlens.v1.EmbeddingService/Embed"]


def test_a_server_sends_its_spans_the_last_ones_when_it_stops(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from tests.server.span_collector import collecting

    with collecting() as (collector, endpoint), process(tmp_path, log_format="json", otlp_endpoint=endpoint) as started:
        told = lines(started)
        said(told, "serving fake/1 on 127.0.0.1:")
        with grpc.insecure_channel(f"127.0.0.1:{(tmp_path / 'port').read_text().strip()}") as channel:
            embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed(embed_request("a text"), timeout=PATIENCE_S)
        started.send_signal(signal.SIGTERM)
        (call,) = (line for line in told if line["logger"] == "twinlens.access")
        assert started.wait(PATIENCE_S) == 0
        (sent,) = collector.requests.get(timeout=PATIENCE_S).resource_spans
    spans = {span.name: span for scope in sent.scope_spans for span in scope.spans}
    assert set(spans) == {call["method"], "prepare", "queue", "encode"}
    assert {span.trace_id.hex() for span in spans.values()} == {call["trace_id"]}


def test_a_collector_that_takes_spans_and_never_answers_holds_up_nobody(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    with socket.create_server(("127.0.0.1", 0)) as hole:
        endpoint = f"http://127.0.0.1:{hole.getsockname()[1]}"
        # So few are kept that most of them have no place.
        few = {"OTEL_BSP_MAX_QUEUE_SIZE": "64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32"}
        with process(tmp_path, few, log_format="json", otlp_endpoint=endpoint) as started:
            told = lines(started)
            said(told, "serving fake/1 on 127.0.0.1:")
            with grpc.insecure_channel(f"127.0.0.1:{(tmp_path / 'port').read_text().strip()}") as channel:
                embedding = embedding_pb2_grpc.EmbeddingServiceStub(channel)
                for number in range(100):  # all their lines fit into the pipe
                    embedding.Embed(embed_request(f"text {number}"), timeout=PATIENCE_S)
            started.send_signal(signal.SIGTERM)
            rest = list(told)
            assert started.wait(PATIENCE_S) == 0
    assert sum(line["logger"] == "twinlens.access" for line in rest) == 100
    # Not a line for every span that has no place.
    assert sum(line["logger"].startswith("opentelemetry") for line in rest) < 20
    assert rest[-1]["message"] == "the last spans could not be sent within 3 s"


def test_a_port_for_metrics_that_is_taken_ends_the_start_with_one_line(tmp_path: Path) -> None:
    from tests.support.fake_encoder import FakeEncoder

    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(data=tmp_path, port=0, canary_interval_s=3600, metrics_port=taken.getsockname()[1])
        with pytest.raises(StartError, match=r"metrics cannot be served on 127.0.0.1:\d+: the port is in use"):
            serve(settings, encoder=FakeEncoder())


def test_an_endpoint_of_spans_that_is_no_address_ends_the_start_before_the_model_is_loaded(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, bundle="no/such/bundle", otlp_endpoint="collector")
    with pytest.raises(StartError, match="otlp_endpoint is an address"):
        serve(settings)
