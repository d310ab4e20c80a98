"""How long a photo takes from JPEG bytes to a tower's 224 x 224 pixels: whole, reduced, and by Pillow alone.

    python bench/decode.py [--repeats 15] [--json FILE]

The photos are scikit-image's, enlarged and given some grain, so that the files are as large as a camera's. The three
ways take turns, and medians are shown. `whole` decodes every pixel by the decode contract, `reduced` lets the JPEG
decoder leave out what the tower cannot see (still at least twice its side), `Pillow` is
`Image.open(…).convert("RGB")` and the same resize.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from twinlens.encoders.decode import decode_picture
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.preprocess import fit

SIZES = ((640, 480), (1920, 1080), (4000, 3000))
SPEC = PreprocessSpec(size=224, resize_size=224, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
GOAL = 3.0  # whole over reduced, at 12 megapixels


def photo(size: tuple[int, int], seed: int = 0) -> bytes:
    """A photo as a camera would write it, as a JPEG."""
    from skimage import data  # noqa: PLC0415 - from the extra `demo`

    coffee = data.coffee()  # type: ignore[no-untyped-call]
    picture = Image.fromarray(coffee).resize(size, Image.Resampling.LANCZOS)
    grain = np.random.default_rng(seed).normal(0, 4, (size[1], size[0], 1))
    stream = io.BytesIO()
    Image.fromarray(np.clip(np.asarray(picture) + grain, 0, 255).astype(np.uint8)).save(stream, "JPEG", quality=90)
    return stream.getvalue()


def whole(data: bytes) -> Image.Image:
    return fit(decode_picture(data), SPEC)


def reduced(data: bytes) -> Image.Image:
    return fit(decode_picture(data, min_side=SPEC.resize_size), SPEC)


def pillow(data: bytes) -> Image.Image:
    return fit(Image.open(io.BytesIO(data)).convert("RGB"), SPEC)


WAYS: dict[str, Callable[[bytes], Image.Image]] = {"whole": whole, "reduced": reduced, "Pillow": pillow}


def measure(data: bytes, repeats: int) -> dict[str, float]:
    """Median milliseconds of each way, and by how much reduced pixels differ from whole ones, in levels of 255."""
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(repeats):
        for name, way in WAYS.items():
            start = time.perf_counter()
            way(data)
            taken[name].append((time.perf_counter() - start) * 1000)
    figures = {f"{name}_ms": statistics.median(times) for name, times in taken.items()}
    difference = np.asarray(whole(data), dtype=np.int64) - np.asarray(reduced(data), dtype=np.int64)
    return {
        **figures,
        "whole_over_reduced": figures["whole_ms"] / figures["reduced_ms"],
        "mean_difference": float(np.abs(difference).mean()),
        "bytes": float(len(data)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    table = Table("pixels", "MB", "whole ms", "reduced ms", "Pillow ms", "gain", "differs by", title="Decode")
    figures = {}
    for size in SIZES:
        found = measure(photo(size), arguments.repeats)
        figures[f"{size[0]}x{size[1]}"] = found
        table.add_row(
            f"{size[0]} x {size[1]}",
            f"{found['bytes'] / 1e6:.1f}",
            *(f"{found[f'{name}_ms']:.1f}" for name in WAYS),
            f"{found['whole_over_reduced']:.1f}",
            f"{found['mean_difference']:.2f}",
        )
    Console().print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0 if figures["4000x3000"]["whole_over_reduced"] >= GOAL else 1


if __name__ == "__main__":
    raise SystemExit(main())
