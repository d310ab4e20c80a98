from __future__ import annotations

import pytest
import torch

from twinlens.training.device import device_of
from twinlens.training.ranks import Ranks


def test_without_a_gpu_it_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert device_of() == torch.device("cpu")


def test_each_process_of_a_machine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = [device_of(Ranks(rank, world_size=4, local_world_size=2)) for rank in range(4)]
    assert found == [torch.device("cuda", k) for k in (0, 1, 0, 1)]
