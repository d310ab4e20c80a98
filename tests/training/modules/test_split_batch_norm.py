from __future__ import annotations

import copy

import pytest
import timm
import torch
from lightly.models.batchnorm import SplitBatchNorm as LightlySplitBatchNorm
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from twinlens.training.modules.split_batch_norm import SplitBatchNorm, has_batch_norm, split_batch_norms

C = 3


def inputs(n: int = 12, seed: int = 0) -> Tensor:
    return 2 + 3 * torch.randn(n, C, 4, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def norm() -> nn.BatchNorm2d:
    torch.manual_seed(0)
    built = nn.BatchNorm2d(C).double()
    nn.init.normal_(built.weight)
    nn.init.normal_(built.bias)
    return built


def slow(x: Tensor, weight: Tensor, bias: Tensor, parts: int) -> Tensor:
    """Each part on its own, channel by channel."""
    result = []
    size = len(x) // parts
    for part in range(parts):
        rows = x[part * size : (part + 1) * size]
        channels = []
        for c in range(C):
            mean = rows[:, c].sum() / rows[:, c].numel()
            variance = ((rows[:, c] - mean) ** 2).sum() / rows[:, c].numel()
            channels.append(weight[c] * (rows[:, c] - mean) / torch.sqrt(variance + 1e-5) + bias[c])
        result.append(torch.stack(channels, dim=1))
    return torch.cat(result)


def test_values_and_gradients_are_those_of_each_part_on_its_own() -> None:
    plain = norm()
    split = SplitBatchNorm(copy.deepcopy(plain), 3).train()
    x = inputs().requires_grad_()
    ours, reference = split(x), slow(x, plain.weight, plain.bias, 3)
    torch.testing.assert_close(ours, reference, rtol=1e-10, atol=1e-10)
    direction = inputs(seed=1)
    mine = torch.autograd.grad(ours, (x, split.weight, split.bias), direction)
    theirs = torch.autograd.grad(reference, (x, plain.weight, plain.bias), direction)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def test_running_statistics_take_the_mean_over_the_parts() -> None:
    split = SplitBatchNorm(norm(), 3).train()
    x = inputs()
    split(x)
    parts = x.view(3, 4, C, 4, 5)
    mean = parts.mean(dim=(1, 3, 4)).mean(dim=0)
    variance = parts.var(dim=(1, 3, 4)).mean(dim=0)
    torch.testing.assert_close(split.running_mean, 0.1 * mean)
    torch.testing.assert_close(split.running_var, 0.9 + 0.1 * variance)
    assert int(split.num_batches_tracked) == 1


def test_in_evaluation_it_is_the_plain_norm() -> None:
    plain = norm()
    split = SplitBatchNorm(copy.deepcopy(plain), 3)
    split.train()(inputs())
    plain.load_state_dict(split.state_dict())
    torch.testing.assert_close(split.eval()(inputs(7)), plain.eval()(inputs(7)), rtol=0, atol=0)


def test_it_equals_lightly_with_the_pictures_dealt_its_way() -> None:
    # lightly puts picture i into part i mod 4; here a part is a run of consecutive pictures.
    theirs = LightlySplitBatchNorm(C, 4).double().train()
    ours = SplitBatchNorm(nn.BatchNorm2d(C).double(), 4).train()
    x = inputs()
    order = torch.arange(12).view(3, 4).T.reshape(-1)
    torch.testing.assert_close(ours(x[order])[order.argsort()], theirs(x))


def test_the_parts_know_nothing_of_each_other() -> None:
    split = SplitBatchNorm(norm(), 2).train()
    x = inputs()
    other = x.clone()
    other[6:] += 5
    assert torch.equal(split(x)[:6], split(other)[:6])


def test_the_layout_stays() -> None:
    split = SplitBatchNorm(norm(), 2).train()
    x = inputs().contiguous(memory_format=torch.channels_last)
    assert split(x).is_contiguous(memory_format=torch.channels_last)


def test_a_network_keeps_its_parameters_and_exchanges_weights_with_the_plain_one() -> None:
    network = timm.create_model("resnet10t", num_classes=0)
    parameters = {name: id(parameter) for name, parameter in network.named_parameters()}
    split_batch_norms(network, 2)
    assert {name: id(parameter) for name, parameter in network.named_parameters()} == parameters
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    plain = timm.create_model("resnet10t", num_classes=0)
    network.train()(torch.randn(4, 3, 32, 32))
    plain.load_state_dict(network.state_dict())
    pixels = torch.randn(3, 3, 32, 32)
    torch.testing.assert_close(network.eval()(pixels), plain.eval()(pixels))


def test_heads_and_fused_activations_are_split_as_well() -> None:
    head = nn.Sequential(nn.Linear(C, C), nn.BatchNorm1d(C, affine=False))
    split_batch_norms(head, 2)
    x = torch.randn(8, C)
    halves = [nn.BatchNorm1d(C, affine=False)(part) for part in head[0](x).chunk(2)]
    torch.testing.assert_close(head(x), torch.cat(halves))
    fused = nn.Sequential(BatchNormAct2d(C))
    split_batch_norms(fused, 2)
    assert fused(torch.randn(4, C, 2, 2)).min() == 0  # its ReLU is still there


def test_one_part_is_the_plain_norm() -> None:
    plain = norm()
    split = SplitBatchNorm(copy.deepcopy(plain), 1).train()
    torch.testing.assert_close(split(inputs()), plain(inputs()))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(split.state_dict()[name], value)


def test_networks_with_and_without_batch_norm_are_told_apart() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert has_batch_norm(network)
    split_batch_norms(network, 2)
    assert has_batch_norm(network)
    assert not has_batch_norm(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))


def test_unequal_parts_and_other_norms_are_refused() -> None:
    with pytest.raises(ValueError, match="10 cannot be cut into 4 equal parts"):
        SplitBatchNorm(norm(), 4).train()(inputs(10))
    unfit = (nn.SyncBatchNorm(C), nn.BatchNorm2d(C, momentum=None), nn.BatchNorm2d(C, track_running_stats=False))
    for other in unfit:
        with pytest.raises(ValueError, match=f"stand in for this {type(other).__name__}"):
            split_batch_norms(nn.Sequential(other), 2)
