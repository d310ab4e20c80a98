"""How good a bundle is on real photos, through a real server: text-to-image retrieval and zero-shot labels.

    python bench/quality/starter.py [--bundle DIR] [--data ../shared/data] [--all] [--json FILE]

Without --bundle the starter is built first. Every figure comes out of gRPC calls: pictures are stored and searched as
a user would. --all adds sets that are for information only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that the package `bench` is found

from bench.quality.photo_sets import are_there, measured_bundle, options, write_figures
from twinlens.client import Client, NewItem
from twinlens.server.local import local_server

# One template for all sets: the client's default.
TEMPLATE = "a photo of a {}."
# Retrieval sets hold captions.jsonl, label sets labels.jsonl. `goal`: least R@1 or top-1.
GOALS = {"imagenet_names": 0.82, "clothing10": 0.48, "cifar10_tiny": 0.33}
RETRIEVAL = ("imagenet_names",)
LABELS = ("clothing10", "cifar10_tiny")
MORE_RETRIEVAL = ("tuxpaint_stamps", "flickr8k_a")


@dataclass(frozen=True)
class Figure:
    """One set's result; `at` maps k to recall@k or top-k accuracy."""

    name: str
    task: str
    pictures: int
    at: dict[int, float]
    goal: float | None
    seconds: float

    @property
    def reached(self) -> bool:
        """Whether the goal is met; True where there is none."""
        return self.goal is None or self.at[1] >= self.goal


def measure(bundle: Path, data: Path, *, everything: bool = False) -> Iterator[Figure]:
    """Serves the bundle and measures it on one set after the other."""
    with local_server(bundle=bundle) as target, Client(target, timeout_s=600.0) as client:
        for name in RETRIEVAL + (MORE_RETRIEVAL if everything else ()):
            yield retrieval(client, data / name)
        for name in LABELS:
            yield labels(client, data / name)


def retrieval(client: Client, folder: Path) -> Figure:
    """Text-to-image recall@1/5/10: for each caption, whether its own picture is among the first k."""
    start = time.perf_counter()
    rows = _rows(folder / "captions.jsonl")
    pictures = list(dict.fromkeys(row["image"] for row in rows))
    client.create_collection(folder.name)
    report = client.upsert(folder.name, (NewItem(id=image, image=folder / image) for image in pictures))
    assert not report.failures, report.failures
    results = client.search_batch(folder.name, [row["caption"] for row in rows], top_k=10, exact=True)
    hits = dict.fromkeys((1, 5, 10), 0)
    for row, result in zip(rows, results, strict=True):
        ids = [hit.id for hit in result.hits]
        for k in hits:
            hits[k] += row["image"] in ids[:k]
    at = {k: count / len(rows) for k, count in hits.items()}
    return Figure(folder.name, "text→image", len(pictures), at, GOALS.get(folder.name), time.perf_counter() - start)


def labels(client: Client, folder: Path) -> Figure:
    """Zero-shot top-1 and top-5 accuracy with one template."""
    start = time.perf_counter()
    rows = _rows(folder / "labels.jsonl")
    names = sorted({row["label"] for row in rows})
    results = client.classify([folder / row["image"] for row in rows], names, templates=[TEMPLATE], top_k=5)
    right = dict.fromkeys((1, 5), 0)
    for row, result in zip(rows, results, strict=True):
        assert result.error is None, result.error
        found = [score.label for score in result.scores]
        for k in right:
            right[k] += row["label"] in found[:k]
    at = {k: count / len(rows) for k, count in right.items()}
    return Figure(folder.name, "labels", len(rows), at, GOALS.get(folder.name), time.perf_counter() - start)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--all", action="store_true", help="also the sets without a goal")
    arguments = parser.parse_args()
    if not are_there(parser, arguments.data):
        return 0
    start = time.perf_counter()
    with measured_bundle(arguments.bundle) as bundle:
        build_s = None if arguments.bundle is not None else time.perf_counter() - start
        if build_s is not None:
            print(f"built the starter in {build_s:.0f} s")
        table = Table(
            "set", "task", "photos", "@1", "@5", "@10", "goal", "s", box=SIMPLE, title="Quality through the server"
        )
        for column in table.columns:
            column.no_wrap = True
        figures = []
        for figure in measure(bundle, arguments.data, everything=arguments.all):
            figures.append(figure)
            at = [f"{figure.at[k]:.3f}" if k in figure.at else "" for k in (1, 5, 10)]
            goal = "" if figure.goal is None else f"{figure.goal:.2f} {'✓' if figure.reached else '✗'}"
            table.add_row(figure.name, figure.task, str(figure.pictures), *at, goal, f"{figure.seconds:.0f}")
        Console().print(table)
        write_figures(arguments.json, figures, build_s=build_s)
    return 0 if all(figure.reached for figure in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
