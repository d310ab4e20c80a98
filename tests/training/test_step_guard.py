"""Steps that are not finite are passed over, counted, and too many of them end a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor

from tests.support.toy_method import ToyMethod, fit_toy
from twinlens.training.errors import TrainingError
from twinlens.training.precision import Precision
from twinlens.training.step_guard import StepGuard


def run(
    method: ToyMethod,
    folder: Path,
    *,
    broken: set[int] | None = None,
    steps: int = 6,
    max_skipped: int = 3,
    precision: Precision = "fp32",
    max_gradient_norm: float | None = None,
    callbacks: list[pl.Callback] | None = None,
) -> dict[str, list[float]]:
    return fit_toy(
        folder,
        method=method,
        broken=broken,
        steps=steps,
        precision=precision,
        guard=StepGuard(max_skipped=max_skipped, max_gradient_norm=max_gradient_norm),
        callbacks=callbacks or [],
    )


class Gradients(pl.Callback):
    """Does something to the gradient of a step before the guard sees it; keeps lengths that the optimiser sees."""

    def __init__(self, change: Callable[[int, pl.LightningModule], None] | None = None) -> None:
        self._change = change
        self.norms: list[float] = []

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._change is not None:
            self._change(trainer.global_step, pl_module)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:  # noqa: ARG002
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.norms.append(float(torch.nn.utils.get_total_norm(grads)))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_step_with_a_loss_that_is_not_finite_changes_nothing_but_the_count(
    tmp_path: Path, precision: Precision
) -> None:
    method = ToyMethod()
    table = run(method, tmp_path, broken={2, 4}, precision=precision)
    assert table["skipped"] == [0, 0, 1, 1, 2, 2]
    for step, unmoved in enumerate((False, False, True, False, True)):
        before, after = method.before[step], method.before[step + 1]
        assert all(torch.equal(before[name], after[name]) for name in before) == unmoved
    assert all(torch.isfinite(value).all() for value in method.net.state_dict().values())


def test_the_learning_rate_goes_on_along_its_curve_whatever_is_skipped(tmp_path: Path) -> None:
    table = run(ToyMethod(), tmp_path, broken={2, 4})
    assert table["learning_rate"] == pytest.approx([0.01 / (1 + step) for step in range(6)], rel=1e-5)


def test_moments_of_the_optimiser_rest_with_the_weights(tmp_path: Path) -> None:
    """The run with a broken batch ends where one does that never saw it, at the rates of the other steps."""
    with_broken = ToyMethod()
    run(with_broken, tmp_path, broken={5}, steps=6)
    without = ToyMethod()
    (tmp_path / "other").mkdir()
    run(without, tmp_path / "other", steps=5)
    for name, value in without.net.state_dict().items():
        assert torch.equal(value, with_broken.net.state_dict()[name]), name


def test_a_gradient_that_is_not_finite_is_skipped_too(tmp_path: Path) -> None:
    def breaks(step: int, method: Any) -> None:
        if step == 1:
            method.net[0].weight.grad[0, 0] = torch.inf

    method = ToyMethod()
    table = run(method, tmp_path, callbacks=[Gradients(breaks)])
    assert table["skipped"][:3] == [0, 1, 1]
    assert all(torch.equal(value, method.before[2][name]) for name, value in method.before[1].items())


@pytest.mark.parametrize(("max_skipped", "step"), [(0, 2), (1, 4)])
def test_too_many_skipped_steps_end_the_run_in_one_line(tmp_path: Path, max_skipped: int, step: int) -> None:
    with pytest.raises(TrainingError) as caught:
        run(ToyMethod(), tmp_path, broken={1, 3}, max_skipped=max_skipped)
    assert str(caught.value) == (
        f"the loss is nan at step {step}: lower learning_rate or use fp32 ({max_skipped + 1} such step(s) so far; "
        f"train.max_skipped allows {max_skipped})"
    )


def test_what_was_skipped_before_an_interruption_counts_on(tmp_path: Path) -> None:
    guard = StepGuard(max_skipped=1)
    guard.load_state_dict({"skipped": 1})
    assert guard.state_dict() == {"skipped": 1}
    with pytest.raises(TrainingError, match=r"2 such step\(s\) so far"):
        fit_toy(tmp_path, broken={0}, steps=2, guard=guard)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_long_gradients_are_shortened_and_short_ones_left_alone(tmp_path: Path, precision: Precision) -> None:
    lengths: dict[float | None, list[float]] = {}
    for limit in (None, 0.5, 1e3):
        seen = Gradients()
        folder = tmp_path / str(limit)
        folder.mkdir()
        run(ToyMethod(learning_rate=1e-6), folder, precision=precision, max_gradient_norm=limit, callbacks=[seen])
        lengths[limit] = seen.norms
    assert lengths[1e3] == lengths[None]
    assert max(lengths[None]) > 0.6
    assert lengths[0.5] == pytest.approx([min(0.5, each) for each in lengths[None]], rel=1e-3)


def test_gradients_in_fp16_have_their_true_length(tmp_path: Path) -> None:
    norms: dict[Precision, list[float]] = {}
    precisions: tuple[Precision, ...] = ("fp32", "fp16")
    for precision in precisions:
        seen = Gradients()
        (tmp_path / precision).mkdir()
        run(ToyMethod(learning_rate=1e-6), tmp_path / precision, precision=precision, callbacks=[seen])
        norms[precision] = seen.norms
    assert norms["fp16"][:2] == [0.0, 0.0]  # the scale that a run begins with is too large
    assert norms["fp16"][2:] == pytest.approx(norms["fp32"][2:], rel=0.02)


def test_a_scale_that_is_too_large_for_fp16_is_halved_and_not_counted(tmp_path: Path) -> None:
    class Large(ToyMethod):
        def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
            return {"loss": 100 * super().training_step(batch, batch_idx)["loss"]}

    method = Large()
    table = run(method, tmp_path, precision="fp16", max_skipped=0, steps=12)
    assert set(table["skipped"]) == {0}
    plugin: Any = method.trainer.precision_plugin
    assert plugin.scaler.get_scale() < 2**16
    assert all(torch.equal(value, method.before[1][name]) for name, value in weights(method.before[0]).items())
    assert not torch.equal(method.before[11]["0.weight"], method.before[0]["0.weight"])


def weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if "running" not in name and "num_batches" not in name}
