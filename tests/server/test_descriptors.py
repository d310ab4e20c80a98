from __future__ import annotations

import resource
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2] else hard))
from twinlens.server.descriptors import allow_many_files
allow_many_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [(256, "", HARD if 0 <= HARD < 65_536 else 65_536), (256, "512", 512), (512, "512", 512)],
)
def test_the_limit_on_open_files_is_raised_as_far_as_allowed(soft: int, hard: str, after: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(soft), hard], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [str(after), hard or str(HARD)]
