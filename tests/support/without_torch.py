"""Holds command lines to what they promise: to be refused before torch, which takes seconds, is loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def assert_refused_without_torch(commands: Sequence[Sequence[str]], folder: Path) -> None:
    """Each command ends with 1 and one line, and none of them has loaded torch."""
    code = (
        "import sys\nfrom twinlens.__main__ import main\n"
        f"codes = [main(each) for each in {[list(each) for each in commands]!r}]\n"
        "sys.exit(codes != [1] * len(codes) or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == len(commands)
