"""Runs benchmarks of this folder, one after the other; tables on the screen, JSON under bench/results/."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Only by name: a quarter of an hour or more, and what needs a GPU or packages of its own.
LONG = {"gpu", "index", "quality/ssl", "serve", "train_clip"}


def main() -> int:
    """Returns 0 if every benchmark ended well."""
    scripts = {
        path.relative_to(HERE).with_suffix("").as_posix(): path
        for path in sorted([*HERE.glob("*.py"), *HERE.glob("quality/*.py")])
        if not path.name.startswith("__")
    }
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "name", nargs="*", help=f"all but {', '.join(sorted(LONG))}, if none is given; there are: {', '.join(scripts)}"
    )
    wanted = parser.parse_args().name or [name for name in scripts if name not in LONG]
    if unknown := [name for name in wanted if name not in scripts]:
        parser.error(f"no benchmark {unknown[0]!r}; there are: {', '.join(scripts)}")
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    failed = []
    for name in wanted:
        print(f"== {name}", flush=True)
        command = [sys.executable, str(scripts[name]), "--json", str(results / f"{name.replace('/', '-')}.json")]
        if subprocess.run(command, check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
