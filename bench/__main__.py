"""Runs every benchmark of this folder, one after the other; tables on the screen, JSON under bench/results/."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Returns 0 if every benchmark ended well."""
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    failed = []
    for script in sorted([*HERE.glob("*.py"), *HERE.glob("quality/*.py")]):
        if script.name.startswith("__"):
            continue
        name = script.relative_to(HERE).with_suffix("").as_posix().replace("/", "-")
        print(f"== {name}", flush=True)
        command = [sys.executable, str(script), "--json", str(results / f"{name}.json")]
        if subprocess.run(command, check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
