"""Threads of onnxruntime, OpenVINO, FAISS and NumPy together, counted by the system in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from twinlens.server.core import thread_shares
from twinlens.server.native_threads import bound_native_threads
from twinlens.server.settings import Settings

_NAMES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS")

# Prints how many threads there are that Python did not start, and how many CPUs were busy on average, after each of the
# libraries has worked.
_SCRIPT = """
import json, os, sys, threading, time
bundle, provider, limit = sys.argv[1:]
import twinlens.encoders.cpus as cpus
if limit == "quota":  # what a cgroup would say
    cpus.allowed_cpus = lambda root=None: 1
else:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from twinlens.server.native_threads import bound_native_threads
from twinlens.server.settings import Settings
bound_native_threads(Settings())
import numpy as np
from twinlens.encoders.encoder import Encoder
from twinlens.index.flat import FlatIndex
from twinlens.index.search_threads import SearchThreads
from twinlens.server.core.thread_shares import thread_shares
encoder = Encoder.load(bundle, provider=provider, threads=thread_shares(Settings()).encode)
index = FlatIndex(64, threads=SearchThreads(thread_shares(Settings()).search))
rng = np.random.default_rng(0)
index.upsert(np.arange(20000), rng.standard_normal((20000, 64), dtype=np.float32))
square = rng.standard_normal((600, 600), dtype=np.float32)
pixels = rng.standard_normal((16, 3, 32, 32), dtype=np.float32)
busy, begun = time.process_time(), time.perf_counter()
for _ in range(20):
    square @ square
    encoder.encode_images(pixels)
    index.search(square[:64, :64], 10)
used = (time.process_time() - busy) / (time.perf_counter() - begun)
native = len(os.listdir("/proc/self/task")) - len(threading.enumerate())
print(json.dumps({"native": native, "cpus_used": used}))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads where Linux lists them")
@pytest.mark.parametrize("limit", ["affinity", "quota"])
@pytest.mark.parametrize("provider", ["cpu", "openvino"])
def test_one_cpu_allowed_is_one_cpu_used(tiny_bundle: Path, provider: str, limit: str) -> None:
    if find_spec(provider if provider == "openvino" else "onnxruntime") is None:
        pytest.skip(f"needs the extra {provider}")
    environment = {name: value for name, value in os.environ.items() if name not in _NAMES}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tiny_bundle), provider, limit],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert done.stderr == ""  # runtimes complain of CPUs they may not pin threads to
    found = json.loads(done.stdout)
    # OpenVINO starts two threads a model; a caller waits for one of them, and the other waits for callers.
    assert found["native"] <= (4 if provider == "openvino" else 0)
    assert found["cpus_used"] < 1.25


class TestVariables:
    def test_the_libraries_get_the_share_of_searching(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(thread_shares, "allowed_cpus", lambda: 32)
        environment: dict[str, str] = {}
        bound_native_threads(Settings(), environment)
        assert environment == dict.fromkeys(_NAMES, "4")

    def test_what_the_user_has_set_stays(self) -> None:
        environment = {"OPENBLAS_NUM_THREADS": "7"}
        bound_native_threads(Settings(search_threads=3), environment)
        assert environment["OPENBLAS_NUM_THREADS"] == "7"
        assert environment["OMP_NUM_THREADS"] == "3"

    def test_serving_sets_them_before_numpy_is_loaded(self) -> None:
        code = (
            "import sys, os, twinlens.server.native_threads as n\n"
            "n.bound_native_threads = lambda settings: print('numpy' in sys.modules) or os._exit(0)\n"
            "from twinlens.__main__ import main\n"
            "main(['serve', '--data', 'nowhere'])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "False\n"
