"""What is measured on held-out data during a run, and the best step of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.conftest import SIZE
from twinlens.training.checkpoint import DualEncoderSpec, build_model
from twinlens.training.csv_rows import read_columns
from twinlens.training.data.batches import PairBatches
from twinlens.training.data.pairs import from_scenes, tokenise
from twinlens.training.data.scenes import make_scene
from twinlens.training.loop import fit
from twinlens.training.losses.pair_loss import pair_loss_of
from twinlens.training.methods.clip import Clip
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.optimiser import Schedule
from twinlens.training.sections.loss import LossConfig
from twinlens.training.validation_callback import Validation, ValidationCallback

# By the step at which they are measured.
SCORES = {0: 0.9, 1: 0.1, 2: 0.3, 3: 0.2, 4: 0.3, 5: float("nan"), 6: 0.4}


def method_of(spec: DualEncoderSpec) -> Clip:
    torch.manual_seed(0)
    towers = DualEncoder(build_model(spec), spec.preprocess.mean, spec.preprocess.std)
    towers.model.visual.layer1.eval()  # type: ignore[union-attr]
    return Clip(
        towers, pair_loss_of(LossConfig()), learning_rate=1e-3, weight_decay=0.0, schedule=Schedule(6, 1), ema_decay=0.5
    )


def run(
    spec: DualEncoderSpec,
    folder: Path,
    *,
    every: int = 1,
    measure: Callable[[Clip], dict[str, float]] | None = None,
    validated: bool = True,
) -> tuple[Clip, ValidationCallback, list[Any]]:
    pairs = tokenise(from_scenes([make_scene(3, index, SIZE) for index in range(16)]), spec.tokenizer_json, spec.text)
    method = method_of(spec)
    seen: list[Any] = []
    callback = ValidationCallback(
        Validation(measure or (lambda clip: {"score": SCORES[clip.global_step]}), every, "score"),
        folder / "evaluations.csv",
        steps=6,
        save_best=lambda _, row: seen.append(("best", int(row["step"]))),
        told=lambda step, values: seen.append((step, values["score"])),
    )
    fit(
        method,
        PairBatches(pairs, 8, seed=0),
        steps=6,
        precision="fp32",
        log_every=3,
        metrics_csv=folder / "metrics.csv",
        progress=lambda *_: None,
        threads=1,
        callbacks=[callback] if validated else [],
    )
    return method, callback, seen


def test_each_step_that_beats_all_before_is_kept(tiny_spec: DualEncoderSpec, tmp_path: Path) -> None:
    """What the run starts from is measured, and is no result of it; what is not a number beats nothing."""
    _, callback, seen = run(tiny_spec, tmp_path)
    assert [step for what, step in seen if what == "best"] == [1, 2, 6]
    assert callback.best["step"] == 6
    table = read_columns(tmp_path / "evaluations.csv")
    assert table["step"] == [0, 1, 2, 3, 4, 5, 6]
    assert table["score"][:5] == [0.9, 0.1, 0.3, 0.2, 0.3]
    assert table["seconds"] == sorted(table["seconds"])


@pytest.mark.parametrize(("every", "steps"), [(0, [0, 6]), (4, [0, 4, 6]), (100, [0, 6])])
def test_start_and_end_are_measured_in_any_case(
    tiny_spec: DualEncoderSpec, tmp_path: Path, every: int, steps: list[int]
) -> None:
    run(tiny_spec, tmp_path, every=every)
    assert read_columns(tmp_path / "evaluations.csv")["step"] == steps


def test_a_look_sees_what_a_checkpoint_would_hold_and_leaves_no_trace(
    tiny_spec: DualEncoderSpec, tmp_path: Path
) -> None:
    modes: list[tuple[bool, bool, bool]] = []

    def measure(method: Clip) -> dict[str, float]:
        assert method.trained() is method.average.network  # type: ignore[union-attr]
        modes.append((method.training, method.towers.training, torch.is_grad_enabled()))
        return {"score": torch.rand(()).item()}

    (tmp_path / "looked").mkdir()
    (tmp_path / "not").mkdir()
    looked, callback, _ = run(tiny_spec, tmp_path / "looked", measure=measure)
    assert set(modes) == {(False, False, False)}
    parts = dict(looked.towers.model.visual.named_modules())  # type: ignore[union-attr]
    assert parts["layer2"].training
    assert not parts["layer1"].training  # as it was
    assert not looked.average.training  # type: ignore[union-attr]
    blind, _, _ = run(tiny_spec, tmp_path / "not", validated=False)
    torch.testing.assert_close(looked.state_dict(), blind.state_dict(), rtol=0, atol=0)
    state = callback.state_dict()
    again = ValidationCallback(
        Validation(measure, 1, "score"), tmp_path / "e.csv", steps=6, save_best=lambda *_: None, told=lambda *_: None
    )
    again.load_state_dict(state)
    assert (again.best, again.last) == (callback.best, callback.last)
