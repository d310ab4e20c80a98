"""A server in a process of its own, which can be killed, stopped, made to fail and looked into."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.chaos.channels import own_channel
from tests.support.chaos.faulty_encoder import Fault
from tests.support.chaos.waiting import PATIENCE_S, eventually

_ROOT = Path(__file__).resolve().parents[3]
# The canary flies often, so that health follows a fault at once; workers count as stuck soon, and a canary outlasts the
# two that it may meet, as by default: it would be at every turn of a tower that hangs, otherwise.
SETTINGS = {"port": 0, "grace_s": 5.0, "canary_interval_s": 0.25, "canary_timeout_s": 4.0, "stuck_s": 1.0}
_LINES_TOLD = 30
# What only a fault of ours would write; a traceback belongs to none of the faults of callers.
_COMPLAINTS = ("Traceback", "never retrieved", "was never awaited", "Fatal Python error")


class ServerProcess:
    """A server with the faulty encoder.

    Args:
        data: Its data folder.
        dimension: Of its vectors.
        notes: Where the log and the port file lie; by default beside the data folder.
        files: How many it may open; by default as many as this process.
        environment: On top of this process's.
        settings: On top of `SETTINGS`.
    """

    def __init__(
        self,
        data: Path,
        *,
        dimension: int = 32,
        notes: Path | None = None,
        files: int | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: object,
    ) -> None:
        self.data = data
        self.dimension = dimension
        self._files = files
        self._port_file = (notes or data.parent) / "server.port"
        self._log = (notes or data.parent) / "server.log"
        self._log_read = 0
        self._settings: dict[str, object] = {
            **SETTINGS,
            **settings,
            "data": str(data),
            "port_file": str(self._port_file),
        }
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._at_rest: dict[str, float] = {}

    @property
    def address(self) -> str:
        """HOST:PORT; the same after a restart."""
        return f"127.0.0.1:{self._settings['port']}"

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        return self._running.pid

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server was not started"
        return self._process

    def start(self) -> float:
        """Starts it and waits until it serves.

        Returns:
            Seconds that it took.

        Raises:
            AssertionError: if it ends instead.
        """
        self._port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.support.chaos.serve_with_faults"]
        command += [json.dumps(self._settings), str(self.dimension)]
        if self._files is not None:
            command = ["sh", "-c", f'ulimit -n {self._files}; exec "$@"', "sh", *command]
        start_s = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=_ROOT, env=self._environment
            )
        while not self._port_file.exists():
            assert self._process.poll() is None, f"the server ended: {self.log()[-2000:]}"
            assert time.monotonic() - start_s < PATIENCE_S, f"the server does not start: {self.log()[-2000:]}"
            time.sleep(0.01)
        self._settings["port"] = int(self._port_file.read_text())
        return time.monotonic() - start_s

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._running.kill()
        self._running.wait()
        self._close_pipes()

    def send_signal(self, number: signal.Signals) -> None:
        """Any signal."""
        self._running.send_signal(number)

    def end(self) -> int:
        """SIGTERM.

        Returns:
            The exit code.
        """
        self._running.send_signal(signal.SIGTERM)
        code = self._running.wait(PATIENCE_S)
        self._close_pipes()
        return code

    def fail(self, fault: Fault) -> None:
        """Makes the encoder fail from now on."""
        self._ask(do="fail", fault=fault)

    def mend(self) -> None:
        """Makes the encoder work again."""
        self._ask(do="mend")

    def state(self) -> dict[str, float]:
        """What is under way: items, queued, calls, tasks, threads, sockets; replaced: workers, since the start."""
        told: dict[str, float] = self._ask(do="state")
        return {**told, "sockets": self.sockets()}

    def memory_bytes(self) -> int:
        """Resident."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def sockets(self) -> int:
        """How many it has open."""
        count = 0
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                count += str(entry.readlink()).startswith("socket:")
        return count

    def log(self) -> str:
        """All that it has logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def complaints(self) -> list[str]:
        """What was logged since the last time that tells of a fault of ours."""
        new = self.log()[self._log_read :]
        self._log_read += len(new)
        lines = new.splitlines()
        found = [at for at, line in enumerate(lines) if any(sign in line for sign in _COMPLAINTS)]
        # With what it was about: the line before, and the last of a traceback.
        return ["\n".join(lines[max(at - 1, 0) : at + _LINES_TOLD]) for at in found[:3]]

    async def serving(self) -> bool:
        """Whether its health is SERVING."""
        async with own_channel(self.address) as channel:
            with suppress(grpc.aio.AioRpcError):
                reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2.0)
                return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
        return False

    def note_rest(self) -> None:
        """Remembers what is under way without callers, for `comes_to_rest`."""
        self._at_rest = self.state()

    async def comes_to_rest(self) -> None:
        """Waits until nothing is left of its callers, and looks into the log.

        Connections of gRPC stay as long as one of their calls is referred to: ask for rest where none is in scope.

        Raises:
            AssertionError: if something stays: an item, a task, a connection; or if the log complains.
        """
        gc.collect()
        state: dict[str, float] = {}

        async def rests() -> bool:
            nonlocal state
            state = await asyncio.to_thread(self.state)
            return state["items"] == state["queued"] == state["calls"] == 0 and all(
                state[name] <= self._at_rest[name] for name in ("tasks", "sockets") if self._at_rest
            )

        try:
            await eventually("the server at rest", rests)
        except AssertionError as error:
            raise AssertionError(f"{error}: {state}, at rest {self._at_rest}") from None
        await eventually("health", self.serving)
        complaints = self.complaints()
        assert not complaints, complaints

    def last_words(self) -> str:
        """What there is to say of one that did not do as it should."""
        state = f"{self.state()}" if self._process is not None and self._process.poll() is None else "it has ended"
        return f"the server: {state}; its log ends with\n{self.log()[-4000:]}"

    def _ask(self, **question: object) -> Any:
        process = self._running
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def _close_pipes(self) -> None:
        for pipe in (self._running.stdin, self._running.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


@contextmanager
def server_process(data: Path, **options: Any) -> Iterator[ServerProcess]:
    """One that serves, and is killed at the end if it still runs."""
    data.parent.mkdir(parents=True, exist_ok=True)
    server = ServerProcess(data, **options)
    try:
        server.start()
        yield server
    except AssertionError as error:
        error.add_note(server.last_words())
        raise
    finally:
        if server._process is not None and server._process.poll() is None:
            server.send_signal(signal.SIGCONT)
            server.kill()
