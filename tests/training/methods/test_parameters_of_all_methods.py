from __future__ import annotations

from typing import Any

import pytest
import torch

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.methods.image_method import ImageMethod
from twinlens.training.methods.registry import IMAGE_METHODS, image_method
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig

N = 16
RESNET = BackboneConfig(timm="resnet10t", arguments={"channels": [8, 8, 16, 16], "stem_width": 8})
VIT = BackboneConfig(
    timm="vit_tiny_patch16_224", arguments={"patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
)
# Methods of one kind of encoder only, and the one that is not trained.
CASES = [
    (name, kind)
    for name in IMAGE_METHODS
    for kind in ("resnet", "vit")
    if (name, kind) not in {("mae", "resnet"), ("jigsaw", "vit")} and name != "random"
]


def small(kind: type[ImageMethod]) -> Any:
    """The method's options, with heads of a few dimensions."""
    narrow = {name: 16 for name in ("dim", "hidden", "prototypes", "outputs") if name in kind.Options.model_fields}
    queue = {"queue_size": 2 * N} if "queue_size" in kind.Options.model_fields else {}
    return kind.Options.model_validate(narrow | queue)


@pytest.mark.parametrize(("name", "encoder"), CASES)
def test_one_step_reaches_every_parameter(name: str, encoder: str) -> None:
    """Data-parallel training waits for all of them."""
    torch.manual_seed(0)
    kind = image_method(name)
    size = 48 if name == "jigsaw" else 32
    views = kind.wanted_global_views or 1
    plan = RunPlan(steps=10, batch_size=N, dataset_size=4 * N, size=size, classes=4, global_views=views)
    backbone = build_backbone(RESNET if encoder == "resnet" else VIT, size)
    options = small(kind)
    kind.check(options, plan, backbone)
    method = kind(backbone, options, plan)
    pixels = torch.randint(0, 256, (N, size, size, 3), dtype=torch.uint8)
    batch = PictureBatch(pixels, torch.arange(N) % 4, torch.arange(N), 0)
    output = method.step([torch.randn(N, 3, size, size) for _ in range(views)], batch)
    torch.autograd.backward(output.loss)
    without = [name for name, p in method.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []
