"""What bombs cost: measured in a process of its own, by the memory the kernel counted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Refusals take some 0.1 s and 20 MB; the limits here tell a run-away from that, on however busy a machine.
MOST_SECONDS = 10.0
MOST_MEGABYTES = 150.0
SIZE = 24_000_000


def measured(kind: str) -> list[dict[str, object]]:
    command = [sys.executable, "-W", "error", "-m", "tests.support.measured_decode", kind, str(SIZE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("kind", "refused"), [("claims", True), ("too_many_parts", True), ("heavy_metadata", False)])
def test_a_bomb_costs_next_to_nothing(kind: str, refused: bool) -> None:
    """Claims and endless parts are refused with a reason; heavy metadata is left alone, and the picture is right."""
    bombs = measured(kind)
    assert len(bombs) > 10
    for bomb in bombs:
        assert (bomb["refused"] is not None) == refused, bomb
        assert float(str(bomb["s"])) < MOST_SECONDS, bomb
        assert float(str(bomb["mb"])) < MOST_MEGABYTES, bomb
        if refused:
            assert any(word in str(bomb["refused"]) for word in ("cut off", "too many", "broken", "header", "run len"))
