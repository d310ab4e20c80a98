"""How well pictures of none of the labels are told from pictures of them, on real photos, through a real server.

    python bench/quality/none_of_these.py [--bundle DIR] [--data ../shared/data] [--json FILE]

Without --bundle the starter is built first. The labels are those of photos of clothes; photos of people, dogs and
landscapes show none of them alone. Thresholds are set so that 95 % of one half of the clothes keep their label; all
else is measured on the other half and on the other photos.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that the package `bench` is found

from bench.quality.photo_sets import are_there, measured_bundle, options, write_figures
from twinlens.client import Classification, Client, NoneOfThese
from twinlens.server.local import local_server

OWN, OTHERS = "clothing10", "flickr8k_a"
KEPT = 0.95
BACKGROUND = ("a photo of a dog.", "a photo of people outdoors.", "a photo of a landscape.", "a photo of a game.")


@dataclass(frozen=True)
class Figure:
    """One condition: the share of the labels' own pictures that keep a label, and of the others that get none."""

    condition: str
    own: int
    kept: float
    others: int
    none: float


def measure(bundle: Path, data: Path) -> Iterator[Figure]:
    """Serves the bundle and measures it condition by condition."""
    with (data / OWN / "labels.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    labels = sorted({row["label"] for row in rows})
    own = sorted(data / OWN / row["image"] for row in rows)
    others = sorted(path for path in (data / OTHERS / "images").rglob("*") if path.is_file())
    with local_server(bundle=bundle) as target, Client(target) as client:

        def scored(pictures: Sequence[Path], none: NoneOfThese | None = None) -> list[Classification]:
            return [
                result
                for result in client.classify_stream(pictures, labels, top_k=1, none_of_these=none)
                if result.error is None
            ]

        seen = scored(own[::2])
        cosine, probability = (
            float(np.quantile([getattr(each.scores[0], name) for each in seen], 1 - KEPT))
            for name in ("cosine", "probability")
        )
        conditions = {
            f"min_cosine {cosine:.3f}": NoneOfThese(min_cosine=cosine),
            f"min_probability {probability:.3f}": NoneOfThese(min_probability=probability),
            f"{len(BACKGROUND)} background prompts": NoneOfThese(background=BACKGROUND),
            f"both, min_cosine {cosine:.3f}": NoneOfThese(min_cosine=cosine, background=BACKGROUND),
        }
        for name, none in conditions.items():
            kept, away = scored(own[1::2], none), scored(others, none)
            yield Figure(
                name,
                len(kept),
                sum(not each.none_of_these for each in kept) / len(kept),
                len(away),
                sum(each.none_of_these for each in away) / len(away),
            )


def main() -> int:
    parser = options(__doc__)
    arguments = parser.parse_args()
    if not are_there(parser, arguments.data):
        return 0
    with measured_bundle(arguments.bundle) as bundle:
        table = Table("condition", "own", "keep a label", "others", "get none", box=SIMPLE, title="None of these")
        figures = []
        for figure in measure(bundle, arguments.data):
            figures.append(figure)
            shares = (f"{figure.kept:.3f}", str(figure.others), f"{figure.none:.3f}")
            table.add_row(figure.condition, str(figure.own), *shares)
        Console().print(table)
        write_figures(arguments.json, figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
