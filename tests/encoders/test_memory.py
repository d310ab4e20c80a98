"""Memory over many loads and many shapes, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import memory_curve

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="reads memory where Linux tells it")

PROVIDERS = (
    "cpu",
    pytest.param(
        "openvino", marks=pytest.mark.skipif(find_spec("openvino") is None, reason="needs the extra openvino")
    ),
)
FLAT = 0.10


def curve(what: str, bundle: Path, provider: str, marks: Sequence[int]) -> list[float]:
    """Resident MiB at each mark."""
    script = Path(memory_curve.__file__)
    listed = ",".join(map(str, marks))
    done = subprocess.run(
        [sys.executable, str(script), what, str(bundle), provider, "fp32", listed],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    return [float(found[str(mark)]) for mark in marks]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_hundred_loads_and_unloads_leave_memory_flat(tiny_bundle: Path, provider: str) -> None:
    after_warm_up, end = curve("cycles", tiny_bundle, provider, (10, 100))
    assert end <= after_warm_up * (1 + FLAT)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_was_let_go_does_not_stay_resident(mid_bundle: Path, tiny_bundle: Path, provider: str) -> None:
    """The allocator would keep the weights: three times this bundle's 37 MB are in use while it loads."""
    (empty,) = curve("cycles", tiny_bundle, provider, (1,))
    after_warm_up, end = curve("cycles", mid_bundle, provider, (3, 12))
    assert end <= after_warm_up * (1 + FLAT)
    assert end <= empty + 30


@pytest.mark.parametrize("provider", PROVIDERS)
def test_batches_of_any_size_and_length_leave_memory_flat(mid_bundle: Path, provider: str) -> None:
    after_warm_up, end = curve("calls", mid_bundle, provider, (100, 500))
    assert end <= after_warm_up * (1 + FLAT)


@pytest.mark.slow
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_hundred_loads_of_a_larger_bundle(mid_bundle: Path, provider: str) -> None:
    after_warm_up, end = curve("cycles", mid_bundle, provider, (10, 100))
    assert end <= after_warm_up * (1 + FLAT)


@pytest.mark.slow
@pytest.mark.parametrize("provider", PROVIDERS)
def test_two_thousand_batches_of_any_size_and_length(mid_bundle: Path, provider: str) -> None:
    after_warm_up, end = curve("calls", mid_bundle, provider, (100, 2000))
    assert end <= after_warm_up * (1 + FLAT)
