"""Fifty steps of `twinlens train simclr` in bf16, beside a loop of plain torch over the same network."""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench.cuda.part import Order, Row, run_part  # noqa: E402

_WARM = 5


def measure(order: Order) -> Iterator[Row]:
    """One row.

    Args:
        order: `device` (cuda or cpu), `steps`, `batch`, `size`, `network` (of timm).
    """
    import timm  # noqa: F401, PLC0415 - what is missing is reported, not raised
    import torch  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415

    from bench.cuda.bare_training import require_device, steps_per_s  # noqa: PLC0415
    from bench.drawn_photos import drawn_photos  # noqa: PLC0415
    from twinlens.training.image_config import read_image_config  # noqa: PLC0415
    from twinlens.training.train_images import train_images  # noqa: PLC0415

    require_device(order["device"])
    steps, batch, size = order["steps"], order["batch"], order["size"]
    settings = (
        f"model.timm={json.dumps(order['network'])}",
        f"augment.size={size}",
        f"train.steps={steps}",
        f"train.batch_size={batch}",
        'train.precision="bf16"',
        "train.log_every=1",
        "train.state_every=0",
        "knn.every_epochs=0",
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pictures = folder / "pictures"
        pictures.mkdir()
        for number, pixels in enumerate(drawn_photos(2 * batch, size * 3 // 2)):
            Image.fromarray(pixels).save(pictures / f"{number}.jpg", quality=90)
        config = read_image_config("simclr", pictures=pictures, settings=settings)
        train_images(config, folder / "run", _silent)
        with (folder / "run" / "metrics.csv").open(encoding="utf-8", newline="") as file:
            at_s = [float(row["seconds"]) for row in csv.DictReader(file)]
    ours = batch * (len(at_s) - _WARM) / (at_s[-1] - at_s[_WARM - 1])
    device = torch.device(order["device"])
    bare = batch * steps_per_s(bare_step(order["network"], batch, size, device), steps, device)
    yield Row(f"SimCLR, {order['network']}, {size} px, batch {batch}, bf16, {steps} steps", "pictures", ours, bare)


def bare_step(network: str, batch: int, size: int, device: Any) -> Any:
    """A step over two views that lie on the device: no data, no augmentation."""
    import timm  # noqa: PLC0415
    import torch  # noqa: PLC0415
    import torch.nn.functional as F  # noqa: N812, PLC0415
    from torch import nn  # noqa: PLC0415

    torch.manual_seed(0)
    trunk: Any = timm.create_model(network, pretrained=False, num_classes=0)
    width = int(trunk.num_features)
    head = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 128))
    model = nn.Sequential(trunk, head).to(device).to(memory_format=torch.channels_last)
    views = torch.randn(2 * batch, 3, size, size, device=device).to(memory_format=torch.channels_last)
    other = torch.arange(2 * batch, device=device).roll(batch)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.06, momentum=0.9)

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            projected = model(views)
        units = F.normalize(projected.float(), dim=1)
        logits = (units @ units.T / 0.1).fill_diagonal_(-1e9)
        F.cross_entropy(logits, other).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()

    return step


@contextmanager
def _silent(_: int) -> Iterator[Any]:
    yield lambda *_: None


if __name__ == "__main__":
    run_part(measure)
