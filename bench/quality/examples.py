"""How good labels by examples are on real photos, through a real server: prototypes and neighbours, few and many.

    python bench/quality/examples.py [--bundle DIR] [--data ../shared/data] [--json FILE]

Without --bundle the starter is built first. Half of each label's pictures, drawn once, are stored in a collection; of
these the first so many of each label are the examples. The other half is labelled. A bundle of pictures alone will do.
"""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that the package `bench` is found

from bench.quality.photo_sets import are_there, measured_bundle, options, write_figures
from twinlens.client import Client, Examples, NewItem
from twinlens.server.local import local_server

SETS = ("clothing10", "cifar10_tiny")
SEED = 0
COUNTS = (1, 2, 5, 10)


@dataclass(frozen=True)
class Figure:
    """The share of one set's pictures that got their own label; `shown`: examples a label, None: all there are."""

    name: str
    rule: str
    shown: int | None
    asked: int
    right: float


def measure(bundle: Path, data: Path) -> Iterator[Figure]:
    """Serves the bundle and measures it on one set after the other."""
    with local_server(bundle=bundle) as target, Client(target, timeout_s=600.0) as client:
        for name in SETS:
            yield from _measure(client, data / name)


def _measure(client: Client, folder: Path) -> Iterator[Figure]:
    with (folder / "labels.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    random.Random(SEED).shuffle(rows)
    shown: dict[str, list[str]] = defaultdict(list)
    asked: list[Mapping[str, str]] = []
    for row in rows:
        # In turns, so that both halves have their share of each label.
        (shown[row["label"]].append(row["image"]) if _turn(asked, shown, row["label"]) else asked.append(row))
    client.create_collection(folder.name)
    items = [
        NewItem(id=image, image=folder / image, metadata={"label": label})
        for label, images in shown.items()
        for image in images
    ]
    report = client.upsert(folder.name, items)
    assert not report.failures, report.failures

    def few(count: int | None, **options: object) -> Examples:
        of_each = {label: images[:count] for label, images in shown.items()}
        return Examples(items=of_each, collection=folder.name, **options)  # type: ignore[arg-type]

    has_text = client.model().info.has_text_tower
    if has_text:
        yield _figure(client, folder, "words", 0, asked, None, sorted(shown))
    for count in (*COUNTS, None):
        yield _figure(client, folder, "prototype", count, asked, few(count))
    if has_text:
        for count in COUNTS:
            yield _figure(client, folder, "prototype + words", count, asked, few(count, text_weight=0.5))
    for count in (COUNTS[-1], None):
        yield _figure(client, folder, "knn", count, asked, few(count, rule="knn"))


def _turn(asked: Sequence[Mapping[str, str]], shown: Mapping[str, Sequence[str]], label: str) -> bool:
    return len(shown[label]) <= sum(row["label"] == label for row in asked)


def _figure(
    client: Client,
    folder: Path,
    rule: str,
    shown: int | None,
    asked: Sequence[Mapping[str, str]],
    examples: Examples | None,
    labels: Sequence[str] = (),
) -> Figure:
    results = client.classify([folder / row["image"] for row in asked], labels, examples=examples, top_k=1)
    right = sum(result.scores[0].label == row["label"] for row, result in zip(asked, results, strict=True))
    return Figure(folder.name, rule, shown, len(asked), right / len(asked))


def main() -> int:
    parser = options(__doc__)
    arguments = parser.parse_args()
    if not are_there(parser, arguments.data):
        return 0
    with measured_bundle(arguments.bundle) as bundle:
        table = Table("set", "by", "examples a label", "asked", "right", box=SIMPLE, title="Labels by examples")
        figures = []
        for figure in measure(bundle, arguments.data):
            figures.append(figure)
            shown = "all" if figure.shown is None else str(figure.shown)
            table.add_row(figure.name, figure.rule, shown, str(figure.asked), f"{figure.right:.3f}")
        Console().print(table)
        write_figures(arguments.json, figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
