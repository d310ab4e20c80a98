from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def train_whole_and_killed(method: str, options: Sequence[str], folder: Path) -> None:
    """Trains in `folder` twice by the command: into `whole`, and into `cut`, where it is killed and then resumed.

    SIGKILL comes at an arbitrary moment after the first state was written; `--resume` is given nothing but method and
    folder.
    """

    def twinlens(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "twinlens", "train", method, *arguments]
        return subprocess.Popen(command, cwd=folder, text=True, stderr=subprocess.PIPE, env=os.environ)

    whole = twinlens(*options, "--out", "whole")
    told = whole.communicate()[1]
    assert whole.returncode == 0, told
    cut = twinlens(*options, "--out", "cut")
    assert cut.stderr is not None
    while not (folder / "cut/state.pt").exists():
        assert cut.poll() is None, cut.stderr.read()
        time.sleep(0.01)
    cut.send_signal(signal.SIGKILL)
    cut.communicate()
    assert not (folder / "cut/checkpoint.pt").exists()
    resumed = twinlens("--out", "cut", "--resume")
    told = resumed.communicate()[1]
    assert resumed.returncode == 0, told
