"""What the measurements on photo sets share: where these are, which bundle is measured, and where figures go."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twinlens.training.starter.build import build_starter

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that all have."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--bundle", type=Path, help="default: build the starter")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of photo sets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser


def are_there(parser: argparse.ArgumentParser, data: Path) -> bool:
    """Whether there are photo sets; says so where there are none, and ends where the user named the folder."""
    if data.is_dir():
        return True
    if data != DATA:
        parser.error(f"no photo sets at {data}")
    print(f"skipped: no photo sets at {DATA}; name a folder of yours with --data")
    return False


@contextmanager
def measured_bundle(named: Path | None) -> Iterator[Path]:
    """The bundle that was named, or the starter, built now."""
    if named is not None:
        yield named
        return
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "starter"
        build_starter(bundle)
        yield bundle


def write_figures(path: Path | None, figures: Sequence[Any], **facts: object) -> None:
    """Writes dataclasses of figures as JSON, where that was asked for."""
    if path is not None:
        report = {**facts, "figures": [asdict(figure) for figure in figures]}
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
