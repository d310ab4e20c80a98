"""A Milvus server of this machine's own, from the PyPI package `milvus`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SERVE = """
import sys
from milvus import default_server
default_server.set_base_dir(sys.argv[1])
default_server.start()
print("port", default_server.listen_port, flush=True)
sys.stdin.read()
default_server.stop()
"""


@contextmanager
def milvus_running(folder: Path) -> Iterator[str]:
    """Starts it, and stops it at the end; yields its address as the setting `index` takes it.

    Args:
        folder: For its data and log; nothing else may be in it.
    """
    if importlib.util.find_spec("milvus") is None:
        pytest.skip("the package milvus, a server, is not installed")
    with (
        folder.joinpath("log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(folder / "server")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdin is not None
        line = next((line for line in process.stdout if line.startswith("port ")), "")
        assert line, folder.joinpath("log").read_text(errors="replace")
        yield f"milvus:http://127.0.0.1:{line.split()[1]}"
        process.stdin.close()
