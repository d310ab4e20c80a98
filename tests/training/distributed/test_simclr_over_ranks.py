from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.support.ranks import on_ranks
from tests.support.small_runs import Stepping
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.methods.simclr import SimCLR, SimCLROptions
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.gather import own_rows, world_size
from twinlens.training.modules.global_batch_norm import share_batch_norm

N, SIZE, RANKS = 8, 16, 2
BACKBONES = {
    "resnet": BackboneConfig(timm="resnet10t", arguments={"channels": [4, 4, 8, 8], "stem_width": 4}),
    "vit": BackboneConfig(
        timm="vit_tiny_patch16_224", arguments={"patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
    ),
}


def step_of(backbone: str, chunk_size: int | None) -> Stepping:
    torch.manual_seed(0)
    plan = RunPlan(steps=1, batch_size=N, dataset_size=N, size=SIZE, chunk_size=chunk_size, world_size=world_size())
    return Stepping(SimCLR(build_backbone(BACKBONES[backbone], SIZE), SimCLROptions(dim=6), plan)).double()


def gradients(step: nn.Module, rows: slice | list[int]) -> tuple[Tensor, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    views = [torch.randn(N, 3, SIZE, SIZE, generator=generator, dtype=torch.float64)[rows] for _ in range(2)]
    loss = step(views)
    torch.autograd.backward(loss)
    found = {name.removeprefix("module."): p.grad for name, p in step.named_parameters() if p.grad is not None}
    return loss.detach(), found


def on_one_rank(backbone: str, chunk_size: int | None, shared_norm: bool) -> tuple[Tensor, dict[str, Tensor]]:
    step = step_of(backbone, chunk_size)
    if shared_norm:
        share_batch_norm(step)
    return gradients(DistributedDataParallel(step), own_rows(N // RANKS))


@pytest.mark.parametrize(("backbone", "chunk_size"), [("resnet", None), ("vit", None), ("vit", 3)])
def test_every_gradient_over_ranks_is_that_of_one_big_batch(
    tmp_path: Path, backbone: str, chunk_size: int | None
) -> None:
    loss, expected = gradients(step_of(backbone, None), slice(None))
    results = on_ranks(on_one_rank, tmp_path, backbone, chunk_size, True)
    torch.testing.assert_close(torch.stack([result[0] for result in results]).mean(), loss)
    for _, found in results:
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_chunks_of_all_ranks_share_their_batch_norm(tmp_path: Path) -> None:
    """Also when they are encoded again for the gradient."""
    # The first two pictures of each rank, then the other two: what is encoded at the same time.
    loss, expected = gradients(step_of("resnet", 4), [0, 1, 4, 5, 2, 3, 6, 7])
    results = on_ranks(on_one_rank, tmp_path, "resnet", 2, True)
    torch.testing.assert_close(torch.stack([result[0] for result in results]).mean(), loss)
    for _, found in results:
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_with_batch_norm_apart_the_gradients_are_others(tmp_path: Path) -> None:
    _, expected = gradients(step_of("resnet", None), slice(None))
    (_, found), _ = on_ranks(on_one_rank, tmp_path, "resnet", None, False)
    name = "method.backbone.trunk.conv1.0.weight"
    assert not torch.allclose(found[name], expected[name], rtol=1e-2)
