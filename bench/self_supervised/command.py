"""The command of `bench/quality/ssl.py`: which rows are run, in processes of their own, and what is printed."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from bench.self_supervised.rows import METHODS, QUESTIONS, Row
from bench.self_supervised.tables import draw_curves, print_methods, print_questions
from twinlens.encoders.cpus import allowed_cpus
from twinlens.training.errors import TrainingRoomError

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench" / "quality" / "ssl.py"
DATA = ROOT.parent / "shared" / "data" / "cifar10_shards"
ROWS = {row.name: row for row in (*METHODS, *(row for question in QUESTIONS for row in question.rows))}


def main(description: str | None) -> int:
    """Returns 0 if every run ended well."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--minutes", type=float, default=12.0, help="of training, for each run")
    parser.add_argument("--methods", help="names of rows, with commas; default: all")
    parser.add_argument("--ablations", action="store_true", help="the ablations instead of the methods")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="for all runs")
    parser.add_argument("--out", type=Path, help="where runs leave their figures; default: a temporary folder")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        print(f"no data at {arguments.data}: name a folder with `train` and `test` shards", file=sys.stderr)
        return 0 if arguments.data == DATA else 1
    if arguments.row:
        return _one(arguments)
    wanted = _wanted(parser, arguments)
    with tempfile.TemporaryDirectory() as temporary:
        out: Path = arguments.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            codes = list(pool.map(lambda row: _process(row, arguments, out), wanted))
        figures = {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}
        print_methods([figures[row.name] for row in METHODS if row.name in figures])
        print_questions(figures)
        if curves := [figures[row.name] for row in METHODS if row.name in figures]:
            picture = (arguments.json or out / "curves").with_suffix(".png")
            draw_curves(curves, picture)
            print(f"learning curves: {picture}")
        if arguments.json is not None:
            arguments.json.write_text(json.dumps({"minutes": arguments.minutes, "rows": figures}, indent=2) + "\n")
    return 1 if any(codes) else 0


def _wanted(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[Row]:
    if not arguments.methods:
        return [row for question in QUESTIONS for row in question.rows] if arguments.ablations else list(METHODS)
    names = arguments.methods.split(",")
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"no row {unknown[0]!r}; there are: {', '.join(ROWS)}")
    return [ROWS[name] for name in names]


def _process(row: Row, arguments: argparse.Namespace, out: Path) -> int:
    if (out / f"{row.name}.json").exists():
        print(f"{row.name}: was there already", flush=True)
        return 0
    command = [sys.executable, str(SCRIPT), "--row", row.name, "--data", str(arguments.data), "--out", str(out)]
    command += ["--minutes", str(arguments.minutes), "--clock", arguments.clock, "--seed", str(arguments.seed)]
    for setting in arguments.set:
        command += ["--set", setting]
    threads = max(1, allowed_cpus() // arguments.jobs)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    return subprocess.run(command, env=environment, check=False).returncode


def _one(arguments: argparse.Namespace) -> int:
    from bench.self_supervised.measure import measure  # noqa: PLC0415 - torch, for the run alone

    row = ROWS[arguments.row]
    try:
        figures = measure(
            row,
            arguments.data,
            minutes=arguments.minutes,
            clock=arguments.clock,
            seed=arguments.seed,
            settings=tuple(arguments.set),
        )
    except TrainingRoomError as error:  # such as a collapse, which is an answer too
        print(f"{row.name}: {error}", flush=True)
        return 1
    path: Path = arguments.out / f"{row.name}.json"
    path.write_text(json.dumps(asdict(figures), indent=2) + "\n")
    print(f"{row.name}: kNN {figures.knn:.3f}, linear {figures.linear:.3f}", flush=True)
    return 0
