"""A process as the container runs one: a user of no rights, on a root file system that nobody can write to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = 10001

# In a mount namespace of its own, so that nothing of it is seen outside or outlasts the process. Reading is allowed
# everywhere, for the interpreter of a test may lie in a folder of root's.
_ENTER = f"""
set -e
mount --make-rprivate /
mount -o bind / "$1"
mount -o remount,bind,ro "$1"
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mkdir "$1/tmp/data" "$1/tmp/given"
mount -o bind "$2" "$1/tmp/data"
mount -o bind,ro "$3" "$1/tmp/given"
root="$1"
shift 3
# What the interpreter needs may lie below /tmp itself.
while [ "$1" != -- ]; do
  mkdir -p "$root$1"
  mount -o bind,ro "$1" "$root$1"
  shift
done
shift
exec chroot "$root" setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs \
  --inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search --bounding-set=-all,+dac_read_search "$@"
"""


@contextmanager
def on_read_only_root(
    command: Sequence[str], *, data: Path, given: Path, root: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Runs a command, to which `data` is /tmp/data and `given` /tmp/given; skips where this process may not do that.

    Args:
        command: What to run.
        data: The only folder besides /tmp that can be written to.
        given: A folder to read.
        root: An empty folder.
        environment: All of it.
    """
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this process may not make a mount namespace")
    os.chown(data, USER, USER)
    checkout = Path(__file__).resolve().parents[2]
    needed = [path for path in {checkout, Path(sys.prefix), Path(sys.base_prefix)} if path.is_relative_to("/tmp")]
    process = subprocess.Popen(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            _ENTER,
            "sh",
            str(root),
            str(data),
            str(given),
            *map(str, needed),
            "--",
            *command,
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
