from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pytorch_lightning import LightningModule

from tests.support.small_runs import tinted_noise
from twinlens.training.data.picture_batches import PictureBatches
from twinlens.training.errors import TrainingError
from twinlens.training.loop import fit
from twinlens.training.ranks import ALONE, Ranks, launched_ranks

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1"}


def test_torchrun_tells_which_process_this_is() -> None:
    ranks = launched_ranks(TORCHRUN)
    assert ranks == Ranks(rank=5, world_size=8, local_world_size=4)
    assert ranks.nodes == 2
    assert not ranks.is_first


def test_a_process_that_torchrun_did_not_start_is_alone() -> None:
    assert launched_ranks({"RANK": "5", "WORLD_SIZE": "8"}) == ALONE
    assert ALONE.is_first


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(TrainingError, match=r"2 processes were started for 1 GPU\(s\): start one for each"):
        fit(
            LightningModule(),
            PictureBatches(tinted_noise(4), 2, seed=0),
            steps=1,
            precision="fp32",
            log_every=1,
            metrics_csv=tmp_path / "metrics.csv",
            progress=lambda _step, _values: None,
            ranks=Ranks(rank=0, world_size=2, local_world_size=2),
        )
