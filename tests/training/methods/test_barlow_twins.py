from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.small_runs import RESNET, VIT, empty_batch, random_views, small_backbone, train
from twinlens.training.losses.barlow_twins import barlow_twins
from twinlens.training.methods.barlow_twins import BarlowTwins, BarlowTwinsOptions
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone_config import BackboneConfig

N = 8


def method(backbone: BackboneConfig = RESNET, run: dict[str, Any] | None = None, **changed: Any) -> BarlowTwins:
    given = {"steps": 10, "batch_size": N, "dataset_size": 32, "size": 16, "learning_rate": 0.01, "log_every": 1}
    plan = RunPlan(**{**given, **(run or {})})
    return BarlowTwins(small_backbone(backbone), BarlowTwinsOptions(**{"dim": 24, **changed}), plan)


@pytest.mark.parametrize("backbone", [RESNET, VIT])
def test_a_step_is_the_papers_loss_on_the_projectors_output(backbone: BackboneConfig) -> None:
    trained, views = method(backbone, redundancy_weight=0.02, loss_scale=0.5), random_views()
    output = trained.step(views, empty_batch())
    first, second = (trained.head(trained.backbone(view)) for view in views)
    terms = barlow_twins(first, second, redundancy_weight=0.02)
    torch.testing.assert_close(output.loss, 0.5 * terms.loss)
    torch.testing.assert_close(output.values, {"invariance": terms.invariance, "redundancy": terms.redundancy})
    torch.testing.assert_close(output.embeddings, (first, second))


def test_views_become_alike_and_dimensions_different(tmp_path: Path) -> None:
    run = {"steps": 60, "batch_size": 32, "dataset_size": 128, "log_every": 1}
    reports = train(method(run=run, redundancy_weight=0.05), tmp_path)
    losses = [report["loss"] for report in reports]
    # Correlations over 32 pictures are noisy.
    assert sum(losses[-20:]) / 20 < 0.6 * sum(losses[:5]) / 5
    assert reports[-1]["effective_rank"] > 3
