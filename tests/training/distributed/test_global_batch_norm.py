from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from tests.support.ranks import on_ranks
from twinlens.training.modules.gather import own_rows
from twinlens.training.modules.global_batch_norm import GlobalBatchNorm, share_batch_norm

RANKS, SHARE = 2, 3


def network() -> nn.Sequential:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        BatchNormAct2d(4),
        nn.Conv2d(4, 5, 3),
        nn.BatchNorm2d(5),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(5, 6),
        nn.BatchNorm1d(6, affine=False),
    ).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def pictures() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return 5 + 3 * torch.randn(RANKS * SHARE, 2, 6, 6, generator=generator, dtype=torch.float64)


def weights_of_outputs() -> Tensor:
    return torch.randn(RANKS * SHARE, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def step(module: nn.Module, rows: slice) -> list[Tensor]:
    """A loss that is the mean of one term a picture, so that the mean over ranks is that of the whole batch."""
    inputs = pictures()[rows].requires_grad_()
    outputs = module(inputs)
    loss = (outputs.tanh() * weights_of_outputs()[rows]).sum(dim=1).mean()
    gradients = torch.autograd.grad(loss, [*module.parameters(), inputs])
    return [outputs.detach(), *gradients]


def on_one_rank() -> tuple[Tensor, list[Tensor], Tensor, dict[str, Tensor]]:
    module = network()
    share_batch_norm(module)
    assert sum(isinstance(layer, GlobalBatchNorm) for layer in module) == 3
    outputs, *of_parameters, of_inputs = step(module, own_rows(SHARE))
    for gradient in of_parameters:
        dist.all_reduce(gradient)
    means = [gradient / RANKS for gradient in of_parameters]
    return outputs, means, of_inputs / RANKS, dict(module.named_buffers())


def test_outputs_gradients_and_running_statistics_are_those_of_the_whole_batch(tmp_path: Path) -> None:
    whole = network()
    outputs, *of_parameters, of_inputs = step(whole, slice(None))
    results = on_ranks(on_one_rank, tmp_path)
    torch.testing.assert_close(torch.cat([result[0] for result in results]), outputs)
    torch.testing.assert_close(torch.cat([result[2] for result in results]), of_inputs)
    for _, gradients, _, buffers in results:
        torch.testing.assert_close(gradients, of_parameters)
        torch.testing.assert_close(buffers, dict(whole.named_buffers()))


def test_alone_it_is_batch_norm_and_keeps_its_parameters() -> None:
    plain = network()
    shared = copy.deepcopy(plain)
    before = dict(shared.named_parameters())
    share_batch_norm(shared)
    assert {name: id(p) for name, p in shared.named_parameters()} == {name: id(p) for name, p in before.items()}
    torch.testing.assert_close(step(shared, slice(None)), step(plain, slice(None)))
    assert shared.state_dict().keys() == plain.state_dict().keys()
    torch.testing.assert_close(shared.eval()(pictures()), plain.eval()(pictures()))


@pytest.mark.parametrize("autocast", [True, False])
def test_half_precision_comes_out_as_it_went_in(autocast: bool) -> None:
    module = GlobalBatchNorm(nn.BatchNorm1d(4))
    rows = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        outputs = module(rows)
    assert outputs.dtype == torch.bfloat16
    torch.testing.assert_close(outputs, nn.BatchNorm1d(4)(rows.float()).bfloat16())
    assert module.running_mean.dtype == torch.float32
