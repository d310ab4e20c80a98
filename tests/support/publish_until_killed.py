"""Publishes again and again, killed one step later each time, until once nothing is left to interrupt.

    python tests/support/publish_until_killed.py STAGING ROOT

The run that is killed at step n publishes to ROOT/n/tiny/1. A step is whatever the interpreter reports of the file
system below ROOT/n: a folder made, a file opened, copied, renamed, removed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from twinlens.encoders.manifest import ImageTower, PreprocessSpec, TowerFiles
from twinlens.encoders.publish import BundleDraft, publish


def kill_at(step: int, below: Path) -> None:
    """Kills this process as `kill -9` does when it takes the step-th step below the folder."""
    left = step

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event.startswith(("open", "os.", "shutil.")) and any(str(below) in str(a) for a in arguments):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(count)


def main() -> int:
    """Prints how many steps there were."""
    staging, root = Path(sys.argv[1]), Path(sys.argv[2])
    half = (0.5, 0.5, 0.5)
    draft = BundleDraft(
        name="tiny",
        version="1",
        dimension=json.loads((staging / "dimension.json").read_text()),
        image=ImageTower(
            files=TowerFiles(fp32="image.onnx"),
            preprocess=PreprocessSpec(size=32, resize_size=32, mean=half, std=half),
        ),
    )
    step = 0
    while True:
        below = root / str(step)
        below.mkdir(parents=True)
        child = os.fork()
        if child == 0:
            kill_at(step, below)
            publish(draft, staging, below / "tiny" / "1")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            sys.stdout.write(f"{step}\n")
            return 0
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            return 1
        step += 1


if __name__ == "__main__":
    raise SystemExit(main())
