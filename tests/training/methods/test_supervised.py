from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError
from twinlens.training.methods.registry import image_method
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.methods.supervised import Supervised, SupervisedOptions
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig

N, SIZE, CLASSES = 6, 16, 5
RESNET = BackboneConfig(timm="resnet10t", arguments={"channels": [8, 8, 16, 16]})


def method(classes: int = CLASSES, **options: Any) -> Supervised:
    torch.manual_seed(0)
    plan = RunPlan(steps=10, batch_size=N, dataset_size=32, size=SIZE, classes=classes)
    return Supervised(build_backbone(RESNET, SIZE), SupervisedOptions(**options), plan)


def views() -> list[Tensor]:
    return [torch.randn(N, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(3))]


def batch(classes: int = CLASSES) -> PictureBatch:
    labels = torch.arange(N).remainder(classes)
    return PictureBatch(torch.zeros(N, SIZE, SIZE, 3, dtype=torch.uint8), labels, torch.arange(N), 0)


def test_the_registry_knows_it_and_that_it_needs_labels() -> None:
    assert image_method("supervised") is Supervised
    assert Supervised.needs_labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy_with_smoothed_labels(smoothing: float) -> None:
    trained = method(label_smoothing=smoothing).eval()
    logits = trained.classifier(trained.backbone(views()[0])).detach().double().tolist()
    total = 0.0
    for i, row in enumerate(logits):
        denominator = sum(math.exp(value) for value in row)
        for c, value in enumerate(row):
            target = smoothing / CLASSES + (1 - smoothing) * (c == i % CLASSES)
            total -= target * math.log(math.exp(value) / denominator)
    output = trained.step(views(), batch())
    assert output.loss.item() == pytest.approx(total / N, rel=1e-5)
    right = [max(range(CLASSES), key=lambda c: row[c]) == i % CLASSES for i, row in enumerate(logits)]
    assert float(output.values["accuracy"]) == pytest.approx(sum(right) / N)


def test_the_classifier_stays_behind() -> None:
    trained = method()
    assert trained.exported() is trained.backbone
    assert trained.exported()(views()[0]).shape == (N, trained.backbone.dim)


def test_two_classes_on_a_line_are_no_collapse() -> None:
    from twinlens.training.collapse.monitor import CollapseMonitor

    trained = method(classes=2)
    (embedding,) = trained.step(views(), batch(2)).embeddings
    monitor = CollapseMonitor(trained.collapse_causes(), patience=1)
    ends = torch.tensor([[1.0], [-1.0]]).repeat(N // 2, 1) * torch.ones(embedding.shape[1])
    for step in range(1, 40):
        # What a classifier that is through with it gives (Papyan et al. 2020).
        assert monitor.see(step, (ends,))["directions"] < 1.1


def test_it_learns() -> None:
    trained = method()
    optimiser = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    for _ in range(25):
        optimiser.zero_grad()
        output = trained.step(views(), batch())
        torch.autograd.backward(output.loss)
        optimiser.step()
    assert float(output.values["accuracy"]) == 1


@pytest.mark.parametrize("classes", [0, 1])
def test_fewer_than_two_classes_are_refused(classes: int) -> None:
    plan = RunPlan(steps=1, batch_size=N, dataset_size=32, size=SIZE, classes=classes)
    with pytest.raises(ConfigError, match=f"needs at least two classes, found {classes}"):
        Supervised.check(SupervisedOptions(), plan, build_backbone(RESNET, SIZE))
