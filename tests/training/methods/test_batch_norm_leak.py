"""Batch norm can give MoCo's answer away, and neither parts nor shuffling alone hide it (He et al. 2020, §3.3)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tests.support.small_runs import empty_batch
from twinlens.training.methods.moco import MoCo, MoCoOptions
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.momentum import MomentumNetwork

N, K, SIDE = 32, 256, 4
DIM = 3 * SIDE * SIDE


class Cheat(nn.Module):
    """Looks away from the picture and reads off the statistics that it was normalised with.

    Pixels are -1 or 1. Normalised by mean μ and deviation σ they are (±1 - μ) / σ; without their sign that is near
    -μ / σ: nearly the same for all pictures that were normalised together, and another for others.
    """

    num_features = DIM

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(DIM)

    def forward(self, pixels: Tensor) -> Tensor:
        normalised: Tensor = self.norm(pixels.flatten(1))
        return normalised - normalised.sign()


def found_without_looking(*, parts: int, shuffle: bool) -> tuple[float, float]:
    """How often the "positive" is found, and the loss, where it is another picture of the same batch.

    Nothing in a picture tells which one; only the statistics of the batch tell its keys from the queue's.
    """
    torch.manual_seed(0)
    options = MoCoOptions(dim=DIM, queue_size=K, batch_norm_parts=parts, shuffle_keys=shuffle)
    plan = RunPlan(steps=100, batch_size=N, dataset_size=10_000, size=SIDE)
    method = MoCo(Backbone(Cheat(), BackboneConfig(), SIDE), options, plan).train()
    method.projection_head = nn.Sequential()
    method.key_head = MomentumNetwork(method.projection_head)
    assert method.queue is not None
    hits, losses = [], []
    for _ in range(16):
        pixels = torch.randint(0, 2, (N, 3, SIDE, SIDE)) * 2.0 - 1.0
        output = method.step([pixels, pixels.roll(1, dims=0)], empty_batch(N))
        q, k = (nn.functional.normalize(each.detach(), dim=1) for each in output.embeddings)
        if method.queue.is_full:
            best_other = (q @ method.queue.keys_kd.T).amax(dim=1)
            hits.append(((q * k).sum(dim=1) > best_other).float().mean())
            losses.append(output.loss.detach())
        method.after_step()
    return float(torch.stack(hits).mean()), float(torch.stack(losses).mean())


@pytest.mark.parametrize("shuffle", [False, True])  # in one part there is nothing to shuffle between
def test_statistics_of_the_whole_batch_give_the_answer_away(shuffle: bool) -> None:
    accuracy, loss = found_without_looking(parts=1, shuffle=shuffle)
    assert accuracy == 1.0
    assert loss < 0.25 * math.log(K + 1)


def test_parts_alone_still_give_it_away_to_neighbours() -> None:
    accuracy, _ = found_without_looking(parts=8, shuffle=False)
    assert accuracy > 0.7  # the three of four pictures whose neighbour is in their own part


def test_parts_with_shuffled_keys_hide_it() -> None:
    accuracy, loss = found_without_looking(parts=8, shuffle=True)
    assert accuracy < 0.15
    assert loss > 0.9 * math.log(K + 1)
