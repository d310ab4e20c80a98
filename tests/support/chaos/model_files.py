"""The model's files taken away while it is served."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
from numpy.typing import NDArray

from tests.server.running import embed_request
from tests.support.chaos.callers import OK, cached_picture
from tests.support.chaos.channels import own_channel
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.waiting import PATIENCE_S, eventually
from tests.support.tiny_bundle import build_tiny_bundle
from twinlens.v1 import embedding_pb2_grpc

_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TWINLENS_CANARY_INTERVAL_S": "0.25"}
_ASKED = ("a red square", cached_picture("red"), "a cat", cached_picture("blue"))


async def model_deleted(folder: Path) -> Outcome:
    """Serves a bundle by the command, deletes it, goes on, and starts anew without it.

    Raises:
        AssertionError: an answer changes, or the new start says anything but one line that names the bundle.
    """
    bundle = folder / "models" / "tiny" / "1"
    build_tiny_bundle(bundle)
    port_file = folder / "port"
    command = [sys.executable, "-m", "twinlens", "serve", "--data", str(folder / "data"), "--port", "0"]
    command += ["--port-file", str(port_file), "--provider", "cpu"]
    told: Counter[str] = Counter()
    with _served([*command, "--bundle", str(bundle)], folder / "log") as process:
        await eventually("a port", lambda: port_file.exists() or process.poll() is not None)
        async with own_channel(f"127.0.0.1:{port_file.read_text().strip()}") as channel:
            before = await _vectors(channel)
            shutil.rmtree(bundle)
            for _ in range(20):
                np.testing.assert_array_equal(await _vectors(channel), before)
                told[OK] += 1
        process.terminate()
        await eventually("the end", lambda: process.poll() is not None)
        assert process.returncode == 0, (folder / "log").read_text()
    again = await asyncio.to_thread(
        subprocess.run, command, env=_ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    (line,) = again.stderr.splitlines()
    assert again.returncode == 1
    assert line.startswith("twinlens: ")
    assert str(bundle) in line
    return Outcome(
        "model's folder deleted while serving", told, None, "the same vectors; a new start is refused in one line"
    )


@contextmanager
def _served(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as errors, subprocess.Popen(command, stderr=errors, env=_ENVIRONMENT) as process:
        try:
            yield process
        finally:
            process.kill()


async def _vectors(channel: grpc.aio.Channel) -> NDArray[np.float32]:
    stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)
    reply = await stub.Embed(embed_request(*_ASKED), timeout=PATIENCE_S)
    return np.array([result.embedding.values for result in reply.results], dtype=np.float32)
