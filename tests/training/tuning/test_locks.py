from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from twinlens.training.checkpoint import DualEncoderSpec, build_model
from twinlens.training.errors import ConfigError
from twinlens.training.ranks import Ranks
from twinlens.training.sections.tuning import TuningConfig
from twinlens.training.towers.two_towers import TwoTowers
from twinlens.training.tuning.locks import Locks

STEPS = 10


@pytest.fixture
def model(tiny_spec: DualEncoderSpec) -> Any:
    torch.manual_seed(0)
    return build_model(tiny_spec).train()


def state(model: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def moved(model: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}


def one_step(model: Any) -> None:
    """A large one, on noise."""
    pixels, ids = torch.randn(4, 3, 32, 32), torch.randint(1, 90, (4, 24))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    (model.encode_image(pixels) - model.encode_text(ids)).square().sum().backward()
    optimiser.step()
    model.zero_grad()


def test_a_locked_image_tower_keeps_weights_and_running_statistics(model: Any) -> None:
    locks, before = Locks(model, TuningConfig(lock_image=True), steps=STEPS), state(model)
    locks.apply(0)
    one_step(model)
    changed = moved(model, before)
    assert not any(name.startswith("visual.") for name in changed)
    assert {"ln_final.weight", "token_embedding.weight"} <= changed


def test_without_locks_everything_moves(model: Any) -> None:
    locks, before = Locks(model, TuningConfig(), steps=STEPS), state(model)
    locks.apply(0)
    one_step(model)
    assert {"visual.conv1.weight", "visual.bn1.running_mean", "ln_final.weight"} <= moved(model, before)


def test_a_number_leaves_the_head_and_so_many_last_blocks_open(model: Any) -> None:
    locks, before = Locks(model, TuningConfig(lock_image=1, lock_text=0), steps=STEPS), state(model)
    locks.apply(0)
    one_step(model)
    parts = {name.split(".")[1] for name in moved(model, before) if name.startswith("visual.")}
    assert parts == {"layer4", "attnpool"}
    assert not any(name.startswith(("transformer.", "token_embedding.")) for name in moved(model, before))


def test_what_is_locked_computes_as_in_evaluation_also_after_others_switched_it(model: Any) -> None:
    reference = copy.deepcopy(model).eval()
    locks = Locks(model, TuningConfig(lock_image=True), steps=STEPS)
    locks.apply(0)
    model.train()  # as a callback that validates may
    locks.apply(1)
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model.visual(pixels), reference.visual(pixels))
    assert model.transformer.training


def test_blocks_open_one_after_the_other_from_the_top(model: Any) -> None:
    locks = Locks(model, TuningConfig(lock_image=True, unlock_steps=2), steps=STEPS)
    opened: list[set[str]] = []
    for step in range(STEPS):
        locks.apply(step)
        before = state(model)
        one_step(model)
        opened.append({name.split(".")[1] for name in moved(model, before) if name.startswith("visual.")})
    assert opened[0] == opened[1] == set()
    assert opened[2] == opened[3] == {"attnpool"}
    assert opened[4] == {"attnpool", "layer4"}
    assert opened[6] == {"attnpool", "layer4", "layer3"}
    assert opened[8] == {"attnpool", "layer4", "layer3", "layer2"}


def test_what_is_locked_depends_on_the_step_alone(model: Any) -> None:
    """So a run that is resumed locks what it would have locked."""
    config = TuningConfig(lock_image=True, lock_text=0, unlock_steps=2)
    one, other = Locks(model, config, steps=STEPS), Locks(copy.deepcopy(model), config, steps=STEPS)
    for step in range(5):
        one.apply(step)
    other.apply(4)
    trained = [{n for n, p in each._model.named_parameters() if p.requires_grad} for each in (one, other)]
    modes = [{n for n, m in each._model.named_modules() if m.training} for each in (one, other)]
    assert trained[0] == trained[1]
    assert modes[0] == modes[1]


def test_what_never_opens_is_left_out_of_the_optimiser_and_what_opens_later_is_not(model: Any) -> None:
    Locks(model, TuningConfig(lock_image=True, unlock_steps=6), steps=STEPS)
    open_at_the_end = {
        name.split(".")[1] for name, p in model.visual.named_parameters(prefix="visual") if p.requires_grad
    }
    assert open_at_the_end == {"attnpool"}


def test_between_processes_all_gradients_are_computed_and_those_of_locked_parts_dropped(model: Any) -> None:
    """Every process must wait for the same gradients at every step."""
    config = TuningConfig(lock_image=True, unlock_steps=1)
    locks = Locks(model, config, steps=STEPS, ranks=Ranks(0, 2, 2))
    locks.apply(0)
    (model.encode_image(torch.randn(2, 3, 32, 32)).sum()).backward()
    assert model.visual.conv1.weight.grad is not None
    locks.on_after_backward(None, None)  # type: ignore[arg-type]
    assert all(p.grad is None for p in model.visual.parameters())


def test_parameters_that_nobody_trains_stay_so_when_their_part_opens(model: Any) -> None:
    model.visual.attnpool.positional_embedding.requires_grad_(False)
    locks = Locks(model, TuningConfig(lock_image=True, unlock_steps=1), steps=STEPS)
    locks.apply(0)
    locks.apply(9)
    assert not model.visual.attnpool.positional_embedding.requires_grad
    assert model.visual.conv1.weight.requires_grad


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unlock_steps": 5}, "unlock_steps opens what lock_image or lock_text locks"),
        ({"lock_image": True, "lock_text": True}, "nothing would be trained"),
        ({"lock_image": True, "patch_dropout": 0.5}, "patch_dropout does nothing"),
        ({"lock_image": -1}, "greater than or equal to 0"),
        ({"layer_decay": 0.0}, "greater than 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TuningConfig(**settings)


def test_a_number_that_locks_nothing_is_refused(model: Any) -> None:
    Locks(model, TuningConfig(lock_image=4), steps=STEPS)
    with pytest.raises(
        ConfigError, match=r"lock_image: 5 blocks are more than the 4 there are: nothing would be locked"
    ):
        Locks(model, TuningConfig(lock_image=5), steps=STEPS)
    with pytest.raises(ConfigError, match=r"lock_text: the tower has no blocks that we can tell apart"):
        Locks(TwoTowers(nn.Identity(), nn.Linear(2, 2), pad_id=0, masked=False), TuningConfig(lock_text=0), steps=STEPS)
