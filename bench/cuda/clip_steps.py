"""Fifty steps of `twinlens train clip` in bf16, beside a loop of plain torch over the same model."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench.cuda.part import Order, Row, run_part  # noqa: E402


def measure(order: Order) -> Iterator[Row]:
    """One row.

    Args:
        order: `device` (cuda or cpu), `steps`, `batch`, `vision` (of open_clip's model configuration).
    """
    import open_clip  # noqa: F401, PLC0415 - what is missing is reported, not raised
    import torch  # noqa: PLC0415

    from bench.cuda.bare_training import require_device, steps_per_s  # noqa: PLC0415
    from bench.train_clip import Case, model_config, twinlens_run, write_data  # noqa: PLC0415

    require_device(order["device"])
    case = Case("CLIP", order["vision"], "bf16")
    steps, batch = order["steps"], order["batch"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        table = write_data(folder, steps * batch, None)
        ours = twinlens_run(case, table, folder, Namespace(steps=steps, batch=batch))
    device = torch.device(order["device"])
    step = bare_step(model_config(case), batch, device)
    bare = batch * steps_per_s(step, steps, device)
    vision = order["vision"]
    what = f"CLIP, {vision['layers']} layers, {vision['image_size']} px, batch {batch}, bf16, {steps} steps"
    yield Row(what, "pairs", ours.samples_per_s, bare)


def bare_step(config: dict[str, Any], batch: int, device: Any) -> Any:
    """A step over one batch that lies on the device: no data, no augmentation, texts padded to the window."""
    import open_clip  # noqa: PLC0415
    import torch  # noqa: PLC0415
    import torch.nn.functional as F  # noqa: N812, PLC0415

    torch.manual_seed(0)
    model = open_clip.CLIP(config["embed_dim"], config["vision_cfg"], config["text_cfg"]).to(device)
    size = config["vision_cfg"]["image_size"]
    pixels = torch.randn(batch, 3, size, size, device=device)
    tokens = torch.zeros(batch, config["text_cfg"]["context_length"], dtype=torch.long, device=device)
    tokens[:, :16] = torch.randint(1, 40_000, (batch, 16), device=device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    target = torch.arange(batch, device=device)

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            images = F.normalize(model.encode_image(pixels), dim=-1)
            texts = F.normalize(model.encode_text(tokens), dim=-1)
        logits = model.logit_scale.exp() * images.float() @ texts.float().T
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()

    return step


if __name__ == "__main__":
    run_part(measure)
