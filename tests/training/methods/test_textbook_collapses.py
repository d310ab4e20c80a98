"""What the papers of BYOL and SimSiam say must fail does fail, at once, and the run is stopped with the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.small_runs import SIZE, small_backbone
from twinlens.training.augment.augmenter import Augmenter
from twinlens.training.augment.recipe import AugmentRecipe, Jitter, ViewGroup
from twinlens.training.data.picture_batches import PictureBatches
from twinlens.training.data.picture_set import PictureSet
from twinlens.training.errors import TrainingError
from twinlens.training.loop import fit
from twinlens.training.methods.registry import image_method
from twinlens.training.methods.run_plan import RunPlan

PICTURES, N = 64, 16
OPTIONS = {
    "byol": {"hidden": 32, "dim": 16},
    "simsiam": {"hidden": 32, "dim": 16, "predictor_hidden": 8},
}


def patchworks() -> PictureSet:
    """Each of 16 squares of random colours."""
    squares = np.random.default_rng(0).integers(0, 256, (PICTURES, 4, 4, 3), dtype=np.uint8)
    names = tuple(str(number) for number in range(PICTURES))
    return PictureSet(
        pixels_nhwc=squares.repeat(SIZE // 4, axis=1).repeat(SIZE // 4, axis=2),
        labels=np.full(PICTURES, -1, dtype=np.int64),
        classes=(),
        names=names,
        digests=names,
        unreadable={},
    )


def run(name: str, folder: Path, *, steps: int, **options: Any) -> dict[str, float]:
    """The first steps of a long run, so that neither learning rate nor momentum have come far on their schedules.

    The views differ in colour too: what they share perfectly could be told apart without any force to collapse.
    """
    jitter = Jitter(probability=0.8, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)
    group = ViewGroup(count=2, crop_scale=(0.3, 1.0), flip=0.5, jitter=jitter, grayscale=0.2)
    plan = RunPlan(
        steps=5000,
        batch_size=N,
        dataset_size=PICTURES,
        size=SIZE,
        learning_rate=0.1,
        optimiser="sgd",
        log_every=5,
    )
    kind = image_method(name)
    method = kind(small_backbone(), kind.Options.model_validate({**OPTIONS[name], **options}), plan)
    method.augmenter = Augmenter(AugmentRecipe(size=SIZE, views=(group,)), (0.5,) * 3, (0.25,) * 3, seed=0)
    return fit(
        method,
        PictureBatches(patchworks(), N, seed=0),
        steps=steps,
        precision="fp32",
        log_every=plan.log_every,
        metrics_csv=folder / "metrics.csv",
        progress=lambda _step, _values: None,
        threads=1,
    )


@pytest.mark.parametrize(
    ("name", "options", "cause"),
    [
        ("byol", {"stop_gradient": False}, "set method.stop_gradient to true"),
        # A faster target shows in steps what takes the paper's 0.996 hundreds.
        ("byol", {"predictor": "none", "momentum": 0.5}, "set method.predictor to mlp"),
        ("simsiam", {"stop_gradient": False}, "set method.stop_gradient to true"),
        ("simsiam", {"predictor": "none"}, "set method.predictor to mlp"),
    ],
)
def test_what_must_collapse_collapses_and_the_run_stops_with_the_cause(
    tmp_path: Path, name: str, options: dict[str, Any], cause: str
) -> None:
    with pytest.raises(TrainingError, match=cause) as caught:
        run(name, tmp_path, steps=300, **options)
    assert "collapsed at step" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "options"), [("byol", {}), ("byol", {"momentum": 0.5}), ("simsiam", {})])
def test_the_published_method_goes_on(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    last = run(name, tmp_path, steps=60, **options)
    assert last["step"] == 60
    assert last["std"] > 0.3 * 16**-0.5
    assert last["directions"] > 1.5
