"""A SimCLR step beside lightly's documented loop: images a second and peak memory, lever by lever.

    python bench/ssl_step.py [--rounds 5] [--batch 128] [--size 64] [--threads 1] [--clock cpu] [--json FILE]

ResNet-18, two views, pictures drawn once and held decoded, so that no disk is measured. The loop beside us is the one
of lightly's documentation: its transform picture by picture, in the same process, then model, loss and SGD in fp32.
Ours takes on one lever at a time. The contenders take turns, step by step; a step's time is the median, by the wall or
(--clock cpu, for machines that do other things as well) by what the process computed. Memory is the peak of a process
of its own that runs two steps of one contender.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the package `bench` is found

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table

from bench.drawn_photos import drawn_photos
from bench.peak_memory import highest_mib
from twinlens.training.augment.augmenter import Augmenter, Mode
from twinlens.training.augment.recipe import AugmentRecipe
from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.image_config import recipe_text
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.methods.simclr import SimCLR, SimCLROptions
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig

Clock = Callable[[], float]
Step = Callable[[int], "Timed"]
Timed = tuple[float, float]  # seconds of the whole step, and of its augmentation

LIGHTLY = "lightly"
# How views are made, whether in channels-last memory, whether in bf16; each adds to the one before.
LEVERS: dict[str, tuple[Mode, bool, bool]] = {
    "twinlens, picture by picture": ("exact", False, False),
    "+ batched augmentation": ("batched", False, False),
    "+ channels_last": ("batched", True, False),
    "+ bf16": ("batched", True, True),
}


def lightly_step(pixels: NDArray[np.uint8], size: int, now_s: Clock) -> Step:
    """As in lightly's documentation of SimCLR, the pictures in memory."""
    import torchvision  # noqa: PLC0415 - only this contender
    from lightly.loss import NTXentLoss  # noqa: PLC0415
    from lightly.models.modules import SimCLRProjectionHead  # noqa: PLC0415
    from lightly.transforms.simclr_transform import SimCLRTransform  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415
    from torch.utils.data import DataLoader  # noqa: PLC0415

    resnet = torchvision.models.resnet18()
    model = nn.Sequential(*list(resnet.children())[:-1], nn.Flatten(), SimCLRProjectionHead(512, 512, 128))
    criterion = NTXentLoss()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.06)
    transform = SimCLRTransform(input_size=size)
    pictures: Any = [Image.fromarray(each) for each in pixels]

    def step(number: int) -> Timed:  # noqa: ARG001 - its random numbers are global
        start_s = now_s()
        ((first, second),) = DataLoader(pictures, len(pictures), collate_fn=collate)
        augmented_s = now_s()
        loss = criterion(model(first), model(second))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return now_s() - start_s, augmented_s - start_s

    def collate(batch: list[Image.Image]) -> list[torch.Tensor]:
        views: list[Any] = [transform(picture) for picture in batch]
        return [torch.stack([pair[view] for pair in views]) for view in range(2)]

    return step


def our_step(
    pixels: NDArray[np.uint8], size: int, now_s: Clock, mode: Mode, *, channels_last: bool, bf16: bool
) -> Step:
    """The method as the loop runs it."""
    import tomllib  # noqa: PLC0415

    recipe = AugmentRecipe.model_validate({**tomllib.loads(recipe_text("simclr"))["augment"], "size": size})
    plan = RunPlan(steps=10**6, batch_size=len(pixels), dataset_size=len(pixels), size=size, log_every=10**6)
    method = SimCLR(build_backbone(BackboneConfig(), size), SimCLROptions(), plan)
    augmenter = Augmenter(recipe, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), seed=0, mode=mode)
    if channels_last:
        method.to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(method.parameters(), lr=0.06)
    source = torch.from_numpy(pixels)
    unknown = torch.full((len(pixels),), -1)

    def step(number: int) -> Timed:
        start_s = now_s()
        views = augmenter(source, number)
        if not channels_last:
            views = [view.contiguous() for view in views]
        augmented_s = now_s()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = method.step(views, PictureBatch(source, unknown, unknown, number)).loss
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()
        return now_s() - start_s, augmented_s - start_s

    return step


def contender(name: str, options: argparse.Namespace) -> Step:
    torch.manual_seed(0)
    pixels = drawn_photos(options.batch, options.size * 3 // 2)
    now_s = time.process_time if options.clock == "cpu" else time.perf_counter
    if name == LIGHTLY:
        return lightly_step(pixels, options.size, now_s)
    mode, channels_last, bf16 = LEVERS[name]
    return our_step(pixels, options.size, now_s, mode, channels_last=channels_last, bf16=bf16)


def peak_mib(name: str, options: argparse.Namespace) -> dict[str, float]:
    """In a process of its own: the peak, and what was resident before the first step."""
    command = [sys.executable, __file__, "--memory-of", name]
    command += [f"--{key}={getattr(options, key)}" for key in ("batch", "size", "threads")]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures a SimCLR step.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory_of:
        step = contender(options.memory_of, options)
        before = highest_mib()
        for number in range(2):
            step(number)
        print(json.dumps({"before_mib": before, "peak_mib": highest_mib()}))
        return
    names = [LIGHTLY, *LEVERS]
    steps = {name: contender(name, options) for name in names}
    taken: dict[str, list[Timed]] = {name: [] for name in names}
    for number in range(options.rounds + 1):
        for name, step in steps.items():
            taken[name].append(step(number))
    rows = []
    for name in names:
        whole_s, augment_s = np.median(np.array(taken[name][1:]), axis=0).tolist()
        memory = peak_mib(name, options)
        rows.append(
            {
                "loop": name,
                "images_per_s": options.batch / whole_s,
                "step_ms": whole_s * 1e3,
                "augment_ms": augment_s * 1e3,
                **memory,
            }
        )
    for row in rows:
        row["times_lightly"] = float(row["images_per_s"]) / float(rows[0]["images_per_s"])
    title = f"SimCLR, ResNet-18, {options.size} px, batch {options.batch}, {options.threads} thread(s)"
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="left" if column == "loop" else "right")
    for row in rows:
        table.add_row(
            *(
                str(value) if isinstance(value, str) else f"{value:.{2 if key == 'times_lightly' else 1}f}"
                for key, value in row.items()
            )
        )
    Console(width=140).print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
