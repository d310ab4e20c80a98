from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.small_runs import RESNET, VIT, empty_batch, random_views, small_backbone, train
from twinlens.training.errors import TrainingError
from twinlens.training.losses.vicreg import vicreg
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.methods.vicreg import VICReg, VICRegOptions
from twinlens.training.modules.backbone_config import BackboneConfig

N = 8
LEARNS = {"steps": 40, "batch_size": 32, "dataset_size": 128, "log_every": 5}


def method(backbone: BackboneConfig = RESNET, run: dict[str, Any] | None = None, **changed: Any) -> VICReg:
    given = {"steps": 10, "batch_size": N, "dataset_size": 32, "size": 16, "learning_rate": 0.01, "log_every": 1}
    plan = RunPlan(**{**given, **(run or {})})
    return VICReg(small_backbone(backbone), VICRegOptions(**{"dim": 24, **changed}), plan)


@pytest.mark.parametrize("backbone", [RESNET, VIT])
def test_a_step_is_the_papers_loss_on_the_expanders_output(backbone: BackboneConfig) -> None:
    trained, views = method(backbone, invariance_weight=10.0), random_views()
    output = trained.step(views, empty_batch())
    first, second = (trained.head(trained.backbone(view)) for view in views)
    terms = vicreg(first, second, invariance_weight=10.0)
    torch.testing.assert_close(output.loss, terms.loss)
    expected = {"invariance": terms.invariance, "variance": terms.variance, "covariance": terms.covariance}
    torch.testing.assert_close(output.values, expected)
    torch.testing.assert_close(output.embeddings, (first, second))


def test_the_terms_hold_each_other(tmp_path: Path) -> None:
    reports = train(method(run=LEARNS), tmp_path)
    assert reports[-1]["loss"] < 0.7 * reports[0]["loss"]
    assert reports[-1]["directions"] > 2


def test_without_the_variance_term_embeddings_shrink_and_the_run_is_stopped(tmp_path: Path) -> None:
    run = {**LEARNS, "steps": 80}
    with pytest.raises(TrainingError, match=r"have collapsed at step .* have shrunk .*; .* set method.variance_weight"):
        train(method(run=run, variance_weight=0.0), tmp_path)


def test_what_the_watch_on_their_size_has_seen_is_part_of_the_state() -> None:
    watched, resumed = method(), method()
    watched._watch_size(0.3)
    watched._watch_size(0.01)
    seen = watched.state_dict()["_size._extra_state"]
    assert not torch.equal(resumed.state_dict()["_size._extra_state"], seen)
    resumed.load_state_dict(watched.state_dict())
    assert torch.equal(resumed.state_dict()["_size._extra_state"], seen)
