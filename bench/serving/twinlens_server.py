"""`twinlens serve` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.serving.processes import free_port

_START_S = 300.0  # tuning takes a minute or two
_LAST_LINES = 2000  # characters of a log


@dataclass(frozen=True, slots=True)
class Variant:
    """What the towers compute in, and where."""

    provider: str
    precision: str

    @property
    def name(self) -> str:
        """As the tables have it."""
        return self.precision if self == TUNED else f"{self.precision} on {self.provider}"

    @classmethod
    def parse(cls, text: str) -> Variant:
        """From `PROVIDER:PRECISION`, or `tuned`.

        Raises:
            ValueError: it is not of that form.
        """
        if text == TUNED.precision:
            return TUNED
        provider, colon, precision = text.partition(":")
        if not provider or not colon or not precision:
            raise ValueError(f"{text!r} is not PROVIDER:PRECISION, such as cpu:fp32")
        return cls(provider, precision)


# What `serve --tune` finds to be fastest, for each tower.
TUNED = Variant("auto", "tuned")


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers.

    Attributes:
        address: HOST:PORT.
        pid: Of its process.
        metrics: Its page for Prometheus.
        start_s: From its start until its health was SERVING.
    """

    address: str
    pid: int
    metrics: str
    start_s: float


@contextmanager
def twinlens_server(
    folder: Path,
    bundle: Path,
    variant: Variant,
    *,
    settings: Mapping[str, str] | None = None,
    extra: Sequence[str] = (),
) -> Iterator[Running]:
    """Starts one and stops it at the end.

    Args:
        folder: Keeps its data, its log and the file with its port.
        bundle: What it serves.
        variant: How.
        settings: More of them, by the names of the environment.
        extra: More options.

    Raises:
        RuntimeError: it does not serve; the message has the end of its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port_file, log = folder / "port", folder / "log.txt"
    port_file.unlink(missing_ok=True)
    metrics_port = free_port()
    command = [sys.executable, "-m", "twinlens", "serve", "--data", str(folder / "data"), "--bundle", str(bundle)]
    command += ["--port", "0", "--port-file", str(port_file), "--metrics-port", str(metrics_port)]
    tunes = variant == TUNED and not (folder / "data" / "tuned.json").exists()
    command += ["--tune"] if tunes else ["--provider", variant.provider, "--precision", variant.precision]
    command += ["--log-level", "warning", *extra]
    with log.open("ab") as lines:
        began_s = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=lines, stderr=lines, stdin=subprocess.DEVNULL, env={**os.environ, **(settings or {})}
        )
    try:
        address = f"127.0.0.1:{_port(process, port_file, log)}"
        _wait_until_healthy(process, address, log)
        start_s = time.perf_counter() - began_s
        yield Running(address, process.pid, f"http://127.0.0.1:{metrics_port}/metrics", start_s)
    finally:
        end(process)


def end(process: subprocess.Popen[bytes], wait_s: float = 30.0) -> None:
    """Asks a process to end, and makes it."""
    process.terminate()
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def last_lines(log: Path) -> str:
    """The end of a log, for a message."""
    return log.read_text(encoding="utf-8", errors="replace")[-_LAST_LINES:]


def _port(process: subprocess.Popen[bytes], port_file: Path, log: Path) -> int:
    give_up_s = time.perf_counter() + _START_S
    while not port_file.exists():
        if process.poll() is not None or time.perf_counter() > give_up_s:
            raise RuntimeError(f"twinlens does not serve:\n{last_lines(log)}")
        time.sleep(0.005)
    return int(port_file.read_text(encoding="ascii"))


def _wait_until_healthy(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    give_up_s = time.perf_counter() + _START_S
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        while True:
            try:
                answer = health.Check(health_pb2.HealthCheckRequest(), timeout=5, wait_for_ready=True)
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return
            except grpc.RpcError:
                pass  # not yet
            if process.poll() is not None or time.perf_counter() > give_up_s:
                raise RuntimeError(f"twinlens is not healthy:\n{last_lines(log)}")
            time.sleep(0.01)
