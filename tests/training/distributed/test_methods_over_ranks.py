from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.support.ranks import on_ranks
from tests.support.small_runs import Stepping
from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.methods.registry import image_method
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.gather import own_rows, world_size
from twinlens.training.modules.global_batch_norm import share_batch_norm

N, SIZE, RANKS = 8, 16, 2
BACKBONE = BackboneConfig(timm="resnet10t", arguments={"channels": [4, 4, 8, 8], "stem_width": 4})
# All whose step draws nothing at random.
METHODS: dict[str, dict[str, Any]] = {
    "byol": {"dim": 6, "hidden": 8},
    "simsiam": {"dim": 6, "hidden": 4},
    "barlow_twins": {"dim": 6},
    "vicreg": {"dim": 6},
    "swav": {"dim": 6, "hidden": 8, "prototypes": 5},
    "dino": {"hidden": 8, "bottleneck": 6, "outputs": 5},
    "supervised": {},
}
# These compute their loss in fp32 whatever they are given.
SINGLE = {"swav", "dino"}


def step_of(name: str) -> Stepping:
    torch.manual_seed(0)
    kind = image_method(name)
    views = kind.wanted_global_views or 1
    plan = RunPlan(
        steps=1,
        batch_size=N,
        dataset_size=N,
        size=SIZE,
        classes=3,
        global_views=views,
        world_size=world_size(),
    )
    step = Stepping(kind(build_backbone(BACKBONE, SIZE), kind.Options.model_validate(METHODS[name]), plan))
    return step.to(dtype_of(name))


def dtype_of(name: str) -> torch.dtype:
    return torch.float32 if name in SINGLE else torch.float64


def after_a_step(step: nn.Module, method: Any, name: str, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss; all gradients, and the running statistics once the moving averages have followed."""
    generator = torch.Generator().manual_seed(1)
    count = image_method(name).wanted_global_views or 1
    views = [torch.randn(N, 3, SIZE, SIZE, generator=generator)[rows].to(dtype_of(name)) for _ in range(count)]
    numbers = torch.arange(N)[rows]
    pixels = torch.zeros(len(numbers), SIZE, SIZE, 3, dtype=torch.uint8)
    loss = step(views, PictureBatch(pixels, numbers % 3, numbers, 0))
    torch.autograd.backward(loss)
    gradients = {key: p.grad.clone() for key, p in method.named_parameters() if p.grad is not None}
    method.after_step()
    return loss.detach(), gradients | dict(method.named_buffers())


def on_one_rank(name: str) -> tuple[Tensor, dict[str, Tensor]]:
    step = step_of(name)
    share_batch_norm(step)
    return after_a_step(DistributedDataParallel(step), step.method, name, own_rows(N // RANKS))


@pytest.mark.parametrize("name", METHODS)
def test_gradients_and_statistics_over_ranks_are_those_of_one_big_batch(tmp_path: Path, name: str) -> None:
    whole = step_of(name)
    loss, expected = after_a_step(whole, whole.method, name, slice(None))
    results = on_ranks(on_one_rank, tmp_path, name)
    torch.testing.assert_close(torch.stack([result[0] for result in results]).mean(), loss)
    atol = 1e-4 if name in SINGLE else 1e-8
    for _, found in results:
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=atol)
