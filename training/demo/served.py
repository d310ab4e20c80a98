"""A real server in a process of its own, for the demos and the benchmarks."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from twinlens.training.demo.failed import DemoFailed


class ServerFailed(DemoFailed):
    """The server did not start, or did not stop cleanly. The message ends with its last lines."""


@contextlib.contextmanager
def served(data: Path, bundle: Path | None = None, *, start_timeout_s: float = 120.0) -> Iterator[str]:
    """Starts `twinlens serve` on a free loopback port and stops it with SIGTERM.

    Args:
        data: The server's data folder.
        bundle: The bundle to serve; None takes the one the folder was last served with.
        start_timeout_s: How long it may take until it answers.

    Yields:
        Its address, `127.0.0.1:PORT`.

    Raises:
        ServerFailed: if it does not start, or does not end with exit code 0.
    """
    with tempfile.TemporaryDirectory(prefix="twinlens-") as private:
        port_file, log = Path(private, "port"), Path(private, "log")
        command = [sys.executable, "-m", "twinlens", "serve", "--data", str(data)]
        command += ["--host", "127.0.0.1", "--port", "0", "--port-file", str(port_file)]
        if bundle is not None:
            command += ["--bundle", str(bundle)]
        with log.open("wb") as sink:
            process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT)
        try:
            yield f"127.0.0.1:{_wait_for_port(process, port_file, log, start_timeout_s)}"
        finally:
            _stop(process, log)


def _wait_for_port(process: subprocess.Popen[bytes], port_file: Path, log: Path, timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        # The server renames the file into place when it is ready, so it is never read half-written.
        if port_file.is_file():
            return int(port_file.read_text(encoding="ascii"))
        if process.poll() is not None:
            raise ServerFailed(f"the server ended with exit code {process.returncode}: {_last_lines(log)}")
        time.sleep(0.05)
    raise ServerFailed(f"the server was not ready within {timeout_s:.0f} s: {_last_lines(log)}")


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.poll() is not None and sys.exc_info()[0] is not None:
        return  # it failed to start; that error is already on its way
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise ServerFailed("the server did not stop within 30 s of SIGTERM") from None
    if code != 0:
        raise ServerFailed(f"the server stopped with exit code {code}: {_last_lines(log)}")


def _last_lines(log: Path, count: int = 3) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return " / ".join(lines[-count:]) or "(it printed nothing)"
