"""What augmentation costs: whole batches beside picture by picture, and beside lightly's transforms.

    python bench/augment.py [--rounds 7] [--batch 128] [--threads 1] [--clock cpu] [--json FILE]

Milliseconds for all views of a batch, from decoded pictures to normalised tensors: medians of rounds in which the
contenders take turns. Pictures are stored as runs store them: at the size of the view up to 32 px, at half as much
again above. lightly has no other path than one picture at a time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the package `bench` is found

import numpy as np
import torch
from lightly.transforms.byol_transform import BYOLTransform, BYOLView1Transform, BYOLView2Transform
from lightly.transforms.moco_transform import MoCoV2Transform
from lightly.transforms.simclr_transform import SimCLRTransform
from PIL import Image
from rich.console import Console
from rich.table import Table

from bench.drawn_photos import drawn_photos
from twinlens.training.augment.augmenter import Augmenter, Mode
from twinlens.training.augment.recipe import AugmentRecipe
from twinlens.training.augment.recipe_file import read_recipe

RECIPES = Path(__file__).resolve().parents[1] / "training" / "recipes"
CASES = (("simclr", 64), ("simclr", 32), ("moco", 64), ("byol", 64), ("swav", 32), ("swav", 64), ("dino", 64))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def lightly_transform(method: str, size: int) -> Any | None:
    """The transform of lightly, where the views are all of one size; without blur where ours has none."""
    small: dict[str, Any] = {"gaussian_blur": 0.0} if size < 48 else {}
    match method:
        case "simclr":
            return SimCLRTransform(size, cj_strength=0.5 if small else 1.0, **small)
        case "moco":
            return MoCoV2Transform(size, **small)
        case "byol":
            return BYOLTransform(BYOLView1Transform(size, **small), BYOLView2Transform(size, **small))
        case _:
            return None


def contenders(method: str, size: int, batch: int) -> dict[str, Callable[[int], object]]:
    recipe: AugmentRecipe = read_recipe(RECIPES / f"{method}.toml").model_copy(update={"size": size})
    pixels = drawn_photos(batch, size if size <= 32 else size * 3 // 2)
    source = torch.from_numpy(pixels)
    pictures = [Image.fromarray(each) for each in pixels]

    def ours(mode: Mode) -> Callable[[int], object]:
        augmenter = Augmenter(recipe, MEAN, STD, 0, mode)
        return lambda number: augmenter(source, number)

    calls = {"batched": ours("batched"), "exact": ours("exact")}
    transform = lightly_transform(method, size)
    if transform is not None:
        calls["lightly"] = lambda _: [torch.stack(views) for views in zip(*map(transform, pictures), strict=True)]
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures augmentation.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    now_s = time.process_time if options.clock == "cpu" else time.perf_counter
    rows: list[dict[str, Any]] = []
    for method, size in CASES:
        calls = contenders(method, size, options.batch)
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(options.rounds + 1):
            for name, call in calls.items():
                start_s = now_s()
                call(number)
                taken[name].append((now_s() - start_s) * 1e3)
        medians = {name: float(np.median(times[1:])) for name, times in taken.items()}
        rows.append({"method": method, "size": size, **medians})
    table = Table(title=f"milliseconds for a batch of {options.batch}, {options.threads} thread(s)")
    for column in ("method", "size", "batched", "exact", "lightly"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in rows:
        times = [f"{row[name]:.0f}" if name in row else "" for name in ("batched", "exact", "lightly")]
        table.add_row(row["method"], str(row["size"]), *times)
    Console(width=100).print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
