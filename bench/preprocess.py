"""What it costs to make a decoded photo the image tower's input, beside open_clip's own transform.

    python bench/preprocess.py [--rounds 40] [--json FILE]

One thread. The photos are scikit-image's; "12 MP" is one of them enlarged. Times are medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from rich.console import Console
from rich.table import Table
from skimage import data

from twinlens.encoders import preprocess
from twinlens.encoders.manifest import PreprocessSpec

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


def spec(size: int) -> PreprocessSpec:
    return PreprocessSpec(size=size, resize_size=size, mean=MEAN, std=STD)


def open_clip_transform(size: int) -> Callable[[Image.Image], NDArray[np.float32]]:
    """The reference, on one thread."""
    torch.set_num_threads(1)
    transform: Any = image_transform_v2(PreprocessCfg(size=size, mean=MEAN, std=STD), is_train=False)
    return lambda picture: np.asarray(transform(picture))


def in_steps(picture: Image.Image, wanted: PreprocessSpec) -> NDArray[np.float32]:
    """The normalisation as it is usually written."""
    pixels = np.asarray(picture, dtype=np.float32) / np.float32(255)
    pixels -= np.asarray(wanted.mean, dtype=np.float32)
    pixels /= np.asarray(wanted.std, dtype=np.float32)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def contenders(picture: Image.Image, size: int) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    wanted, reference = spec(size), open_clip_transform(size)
    fitted = preprocess.fit(picture, wanted)
    return {
        "resize_crop": lambda: preprocess.fit(picture, wanted),
        "normalise": lambda: preprocess.normalise(fitted, wanted),
        "normalise_in_steps": lambda: in_steps(fitted, wanted),
        "all": lambda: preprocess.preprocess_picture(picture, wanted),
        "open_clip": lambda: reference(picture),
    }


def photos() -> Iterator[tuple[str, Image.Image]]:
    pixels: NDArray[np.uint8] = data.coffee()  # type: ignore[no-untyped-call]
    coffee = Image.fromarray(pixels)
    yield "600x400", coffee
    yield "4000x3000", coffee.resize((4000, 3000))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures resizing, cropping and normalising.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, picture in photos():
        for size in (224, 384):
            calls = contenders(picture, size)
            taken: dict[str, list[float]] = {call: [] for call in calls}
            for _ in range(options.rounds + 1):
                for call, run in calls.items():
                    start = time.perf_counter()
                    run()
                    taken[call].append((time.perf_counter() - start) * 1000)
            medians = {call: float(np.median(times[1:])) for call, times in taken.items()}
            off = np.abs(preprocess.preprocess_picture(picture, spec(size)) - open_clip_transform(size)(picture)).max()
            rows.append({"photo": name, "size": size, **medians, "largest_difference": float(off)})
    table = Table(title="milliseconds a photo, one thread")
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(
            *(
                f"{value:.2g}"
                if key == "largest_difference"
                else f"{value:.3f}"
                if isinstance(value, float)
                else str(value)
                for key, value in row.items()
            )
        )
    Console(width=140).print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
