from __future__ import annotations

from typing import Any

import pytest
import torch
from lightly.models.utils import update_momentum
from lightly.utils.scheduler import cosine_schedule
from torch import Tensor, nn

from twinlens.training.modules.momentum import MomentumNetwork, cosine_momentum


def layer(network: nn.Module, number: int) -> Any:
    return network.get_submodule(str(number))


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    built = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    nn.init.normal_(layer(built, 1).weight)
    nn.init.normal_(layer(built, 1).bias)
    built(torch.randn(8, 3, 4, 4))  # moves the running statistics away from where all networks start
    return built


def tensors(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def test_it_starts_as_a_copy_that_shares_nothing() -> None:
    online = network(0)
    followed = MomentumNetwork(online)
    before = tensors(followed.network)
    for name, value in tensors(online).items():
        torch.testing.assert_close(before[name], value, rtol=0, atol=0)
    with torch.no_grad():
        for parameter in online.parameters():
            parameter.add_(1.0)
    for name, value in tensors(followed.network).items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_parameters_and_running_statistics_follow_the_published_rule() -> None:
    online, followed, m = network(1), MomentumNetwork(network(0)), 0.9
    old, new = tensors(followed.network), tensors(online)
    followed.follow(online, m)
    moved = tensors(followed.network)
    floats = [name for name, value in old.items() if value.is_floating_point()]
    assert "1.running_mean" in floats
    assert "1.running_var" in floats
    for name in floats:
        slow = m * old[name].double() + (1 - m) * new[name].double()
        torch.testing.assert_close(moved[name].double(), slow, rtol=1e-6, atol=1e-7)
        assert not torch.equal(old[name], new[name]), name


def test_parameters_move_as_lightlys_do() -> None:
    online, followed = network(1), MomentumNetwork(network(0))
    theirs = network(0)
    update_momentum(online, theirs, m=0.9)
    followed.follow(online, 0.9)
    torch.testing.assert_close(list(followed.network.parameters()), list(theirs.parameters()), check_stride=False)


def test_counters_are_copied() -> None:
    online = network(1)
    followed = MomentumNetwork(online)
    online(torch.randn(8, 3, 4, 4))
    followed.follow(online, 0.99)
    assert int(layer(followed.network, 1).num_batches_tracked) == 2


def test_many_steps_equal_the_closed_form_of_the_average() -> None:
    online, m = network(1), 0.8
    followed = MomentumNetwork(network(0))
    start = layer(followed.network, 3).weight.double()
    for _ in range(10):
        followed.follow(online, m)
    expected = m**10 * start + (1 - m**10) * layer(online, 3).weight.double()
    torch.testing.assert_close(layer(followed.network, 3).weight.double(), expected, rtol=1e-5, atol=1e-6)


def test_momentum_1_stays_and_momentum_0_copies_to_the_bit() -> None:
    online, followed = network(1), MomentumNetwork(network(0))
    before = tensors(followed.network)
    followed.follow(online, 1.0)
    after = tensors(followed.network)
    assert all(torch.equal(after[name], value) for name, value in before.items() if value.is_floating_point())
    followed.follow(online, 0.0)
    assert all(torch.equal(value, online.state_dict()[name]) for name, value in tensors(followed.network).items())


def test_it_never_receives_gradients() -> None:
    online = network(0)
    followed = MomentumNetwork(online)
    pixels = torch.randn(8, 3, 4, 4, requires_grad=True)
    targets = followed(pixels)
    assert not targets.requires_grad
    torch.autograd.backward(((online(pixels) - targets) ** 2).sum())
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in followed.parameters())
    assert all(parameter.grad is not None for parameter in online.parameters())
    followed.follow(online, 0.5)
    assert all(parameter.grad_fn is None for parameter in followed.parameters())


def test_in_training_it_computes_on_the_statistics_of_its_batch() -> None:
    followed = MomentumNetwork(network(0)).train()
    pixels = 5 + 3 * torch.randn(8, 3, 4, 4)
    before = tensors(followed.network)["1.running_mean"]
    trained = followed(pixels)
    assert not torch.equal(before, layer(followed.network, 1).running_mean)
    assert not torch.allclose(trained, followed.eval()(pixels))


def test_a_network_of_another_build_is_refused() -> None:
    with pytest.raises(ValueError, match="not built alike"):
        MomentumNetwork(network(0)).follow(nn.Linear(2, 2), 0.9)
    with pytest.raises(ValueError, match="decay"):
        MomentumNetwork(network(0)).follow(network(0), 1.1)


def test_the_cosine_schedule_rises_from_its_start_to_1() -> None:
    values = [cosine_momentum(0.996, step / 10) for step in range(11)]
    assert values[0] == pytest.approx(0.996)
    assert values[5] == pytest.approx(0.998)
    assert values[10] == 1.0
    assert values == sorted(values)
    # Grill et al. 2020, §3.3: 1 - (1 - 0.996) · (cos(πk/K) + 1) / 2, at k/K = 1/3, where the cosine is ½.
    assert cosine_momentum(0.996, 1 / 3) == pytest.approx(1 - 0.004 * 0.75)
    assert cosine_momentum(0.9, 1.0, end=0.99) == pytest.approx(0.99)


@pytest.mark.parametrize("step", [0, 3, 7, 9])
def test_the_cosine_schedule_is_lightlys(step: int) -> None:
    # lightly's last step is at the end of the schedule; here the end is after it.
    assert cosine_momentum(0.99, step / 9) == pytest.approx(cosine_schedule(step, 10, 0.99, 1.0))


def test_masks_that_no_checkpoint_keeps_stay_as_they_are() -> None:
    """An average of -∞ with itself is not a number."""
    online = nn.Linear(2, 2)
    online.register_buffer("mask", torch.full((2, 2), -torch.inf), persistent=False)
    follower = MomentumNetwork(online)
    follower.follow(online, 0.5)
    assert torch.equal(follower.network.mask, online.mask)  # type: ignore[arg-type]
