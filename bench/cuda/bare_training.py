"""How fast a loop of plain torch takes a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.cuda.part import Skipped

_WARM_STEPS = 3


def require_device(device: str) -> None:
    """Raises `Skipped` where torch has no such device."""
    import torch  # noqa: PLC0415 - what is missing is reported, not raised

    if device == "cuda" and not torch.cuda.is_available():
        raise Skipped(f"torch {torch.__version__} sees no CUDA device")


def steps_per_s(step: Callable[[], None], steps: int, device: Any) -> float:
    """Steps a second, after a few that do not count; what the device still computes is waited for."""
    import torch  # noqa: PLC0415

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(_WARM_STEPS):
        step()
    wait()
    begun_s = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return steps / (time.perf_counter() - begun_s)
