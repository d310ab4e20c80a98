"""When a run looks for collapse: from its first step on, and often enough whatever it reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor

from tests.support.small_runs import small_backbone, train
from twinlens.training.collapse.monitor import CollapseMonitor
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.methods.simclr import SimCLR, SimCLROptions


@pytest.mark.parametrize(("log_every", "looks"), [(1000, [1, 20, 40, 45]), (15, [1, 15, 20, 30, 40, 45])])
def test_looks_at_the_first_step_at_reports_and_at_every_twentieth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_every: int, looks: list[int]
) -> None:
    seen: list[int] = []
    see = CollapseMonitor.see

    def record(self: CollapseMonitor, step: int, embeddings: tuple[Tensor, ...]) -> dict[str, float]:
        seen.append(step)
        return see(self, step, embeddings)

    monkeypatch.setattr(CollapseMonitor, "see", record)
    plan = RunPlan(steps=45, batch_size=8, dataset_size=32, size=16, learning_rate=1e-3, log_every=log_every)
    reports = train(SimCLR(small_backbone(), SimCLROptions(dim=8), plan), tmp_path)
    assert seen == looks
    assert all("effective_rank" in report for report in reports)
