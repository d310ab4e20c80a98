"""Collections beside bare FAISS, qdrant-client's local mode and Milvus Lite: speed next to recall, and what it costs.

    python bench/index.py [--rows 200000] [--dimension 512] [--kinds flat,hnsw,ivf_flat,ivf_pq] [--json FILE]

Vectors are clustered and synthetic. Every figure comes from a process of its own; a contender whose package is not
installed is left out. "twinlens collection" finds items with caption and metadata, "twinlens engine" keys and scores as
bare FAISS does, which is set to the recall of twinlens. `--growth` measures twinlens at smaller sizes too, for a plot
and an estimate; `--docs` writes tables and plot into docs/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.engines.contender import CONTENDERS, available, kinds_of  # noqa: E402
from bench.engines.dataset import make_dataset  # noqa: E402
from bench.engines.growth import plot  # noqa: E402
from bench.engines.page import write_measured  # noqa: E402
from bench.engines.report import growth_curves, sheets  # noqa: E402

KINDS = ("flat", "hnsw", "ivf_flat", "ivf_pq")
PAGE = ROOT / "docs" / "scaling.md"
PLOT = ROOT / "docs" / "images" / "index_growth.png"


def main() -> int:
    """Returns 0 if everything could be measured."""
    options = _options()
    failed: list[str] = []
    sizes = sorted({options.rows, *options.growth})
    figures: dict[str, Any] = {
        "rows": options.rows,
        "dimension": options.dimension,
        "threads": options.threads,
        "machine": _processor(),
        "stored": {},
        "runs": [],
        "filtered": [],
    }
    with tempfile.TemporaryDirectory(dir=options.folder) as folder_name:
        for rows in sizes:
            folder = Path(folder_name) / str(rows)
            data = folder / "data"
            data.mkdir(parents=True)
            make_dataset(data, rows, options.dimension, options.queries)
            contenders = options.contenders if rows == options.rows else ["twinlens"]
            for name in contenders:
                try:
                    measure(name, folder, rows, options, figures)
                except subprocess.CalledProcessError as error:
                    print(f"{name}: {' '.join(error.cmd[2:5])} failed, and the rest of it is left out", file=sys.stderr)
                    failed.append(name)
                if options.json is not None:
                    options.json.write_text(json.dumps(figures, indent=2) + "\n")
            shutil.rmtree(folder)
    for sheet in sheets(figures):
        sheet.show()
    drawn = options.plot is not None and len(sizes) > 1
    if drawn:
        plot(options.plot, *growth_curves(figures["runs"]))
    if options.docs:
        write_measured(PAGE, figures, os.path.relpath(options.plot, PAGE.parent) if drawn else None)
    return 1 if failed else 0


def measure(name: str, folder: Path, rows: int, options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """All figures of one contender over one dataset."""
    own = folder / name.replace(" ", "-")
    own.mkdir()
    stored = step("store", name, own, "", options)
    if stored and rows == options.rows:
        figures["stored"][name] = stored
    recalls = {run["kind"]: run for run in figures["runs"] if run["contender"] == "twinlens" and run["rows"] == rows}
    for kind in [kind for kind in options.kinds if kind in kinds_of(name)]:
        print(f"{name}, {rows:,} vectors, {kind}", file=sys.stderr, flush=True)
        if name == "faiss":
            beside = recalls.get(kind, {})
            (own / "parameters.json").write_text(json.dumps(beside.get("parameters", {})))
            recall = beside["by"]["engine"]["recall"] if beside else 0.95
        else:
            recall = 0.0
        run = {"contender": name, "kind": kind, "rows": rows, **step("build", name, own, kind, options)}
        run |= step("search", name, own, kind, options, recall=recall)
        if name == "twinlens":
            run["parameters"] = _parameters(own)
        figures["runs"].append(run)
        if rows == options.rows and options.filtered and (found := step("filtered", name, own, kind, options)):
            figures["filtered"].append({"contender": name, "kind": kind, "conditions": found})
    shutil.rmtree(own)


def step(
    what: str, name: str, folder: Path, kind: str, options: argparse.Namespace, *, recall: float = 0.0
) -> dict[str, Any]:
    """One process of `bench.engines.measure`; what it found."""
    asked = {
        "threads": options.threads,
        "callers": [1, 8],
        "seconds": options.seconds,
        "filtered": options.filtered,
        "recall": recall,
    }
    # Waiting threads spin by default; on a machine that does something else, training takes minutes for it.
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
    command = [sys.executable, "-m", "bench.engines.measure", what, name, str(folder), str(folder.parent / "data")]
    done = subprocess.run(
        [*command, kind, json.dumps(asked)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _parameters(folder: Path) -> dict[str, int]:
    """What the merged image vectors were built with, by the segment's own account."""
    for path in folder.rglob("segment.json"):
        parameters: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))["parameters"]
        if parameters:
            return parameters
    return {}


def _processor() -> str:
    """The processor's name, where the system tells."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown processor"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--contenders", type=lambda text: text.split(","), default=list(CONTENDERS))
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--filtered", type=int, default=50, metavar="QUERIES", help="0 leaves filters out")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each search is repeated")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--growth", type=lambda text: [int(n) for n in text.split(",")], default=[], metavar="N,N,…")
    parser.add_argument("--folder", type=Path, help="where the files go meanwhile")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--plot", type=Path, help=f"draw growth; with --docs {PLOT.relative_to(ROOT)}")
    parser.add_argument("--docs", action="store_true", help="write tables and plot into docs/scaling.md")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"no kind {min(unknown)!r}; there are: {', '.join(KINDS)}")
    if unknown := set(options.contenders) - set(CONTENDERS):
        parser.error(f"no contender {min(unknown)!r}; there are: {', '.join(CONTENDERS)}")
    for name in options.contenders:
        if not available(name):
            print(f"{name}: not installed, left out", file=sys.stderr)
    options.contenders = [name for name in options.contenders if available(name)]
    if options.docs and options.plot is None:
        options.plot = PLOT
    return options


if __name__ == "__main__":
    raise SystemExit(main())
