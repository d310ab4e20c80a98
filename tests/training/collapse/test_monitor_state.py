from __future__ import annotations

import pytest
import torch

from twinlens.training.collapse.assignments import AssignmentMonitor, assignment_use
from twinlens.training.collapse.monitor import CollapseMonitor
from twinlens.training.errors import TrainingError


def views(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Healthy at first, then all pictures alike."""
    generator = torch.Generator().manual_seed(step)
    spread = 1.0 if step < 5 else 1e-4
    both = torch.ones(2, 32, 8) + spread * torch.randn(2, 32, 8, generator=generator)
    return both[0], both[1]


def stopped_at(resumed_at: int | None) -> int:
    monitor = CollapseMonitor("a cause", patience=8)
    for step in range(1, 60):
        if step == resumed_at:
            state = monitor.state_dict()
            monitor = CollapseMonitor("a cause", patience=8)
            monitor.load_state_dict(state)
        try:
            monitor.see(step, views(step))
        except TrainingError:
            return step
    return 0


@pytest.mark.parametrize("resumed_at", [3, 6, 12])
def test_a_resumed_run_stops_where_the_whole_one_would(resumed_at: int) -> None:
    assert stopped_at(resumed_at) == stopped_at(None) == 13


def test_assignments_are_remembered_too() -> None:
    healthy = assignment_use(torch.eye(8))
    collapsed = assignment_use(torch.eye(8)[:1].expand(8, 8))
    before = AssignmentMonitor("a cause", patience=4)
    before.see(1, healthy)
    for step in (2, 3, 4):
        before.see(step, collapsed)
    after = AssignmentMonitor("a cause", patience=4)
    after.load_state_dict(before.state_dict())
    after.see(5, collapsed)
    with pytest.raises(TrainingError, match="a cause"):
        after.see(6, collapsed)
