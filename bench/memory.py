"""Resident memory over loads and unloads of a bundle, and over batches of random sizes and lengths.

Run as ``python bench/memory.py [--bundle DIR]``; without one, two drawn bundles of 20 kB and 37 MB are measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

CYCLES = (1, 10, 25, 50, 100)
CALLS = (1, 100, 500, 1000, 2000)


def curve(what: str, bundle: Path, provider: str, precision: str, marks: tuple[int, ...]) -> dict[int, float]:
    """Resident MiB by count, in a process of its own."""
    script = ROOT / "tests" / "support" / "memory_curve.py"
    command = [sys.executable, str(script), what, str(bundle), provider, precision, ",".join(map(str, marks))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {int(count): float(mib) for count, mib in json.loads(done.stdout).items()}


def drawn_bundles(folder: Path) -> list[Path]:
    from tests.support.mid_bundle import build_mid_bundle  # noqa: PLC0415 - needs the package onnx
    from tests.support.tiny_bundle import build_tiny_bundle  # noqa: PLC0415

    build_tiny_bundle(folder / "tiny")
    build_mid_bundle(folder / "mid")
    return [folder / "tiny", folder / "mid"]


def main() -> None:
    from twinlens.encoders.runtime import available_precisions, available_providers  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, help="measure this one")
    parser.add_argument("--scale", type=float, default=1.0, help="fewer cycles and calls, for a quick look")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    marks = {
        what: tuple(sorted({max(1, round(mark * options.scale)) for mark in of}))
        for what, of in (("cycles", CYCLES), ("calls", CALLS))
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bundles = [options.bundle] if options.bundle is not None else drawn_bundles(Path(folder))
        for what, of in marks.items():
            table = Table(title=f"resident MiB after so many {what}")
            for name in ("bundle", "provider", "precision", *map(str, of)):
                table.add_column(name, justify="right")
            for bundle in bundles:
                for provider in available_providers():
                    for precision in available_precisions(provider):
                        if precision not in {"fp32", "bf16"}:
                            continue  # other files, the same runtimes
                        found = curve(what, bundle, provider, precision, of)
                        facts = {"what": what, "bundle": bundle.name, "provider": provider, "precision": precision}
                        rows.append({**facts, "mib": found})
                        table.add_row(bundle.name, provider, precision, *(f"{found[mark]:.0f}" for mark in of))
            Console().print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
