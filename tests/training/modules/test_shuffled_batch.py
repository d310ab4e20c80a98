from __future__ import annotations

import torch
from torch import Tensor, nn

from twinlens.training.modules.shuffled_batch import computed_shuffled
from twinlens.training.modules.split_batch_norm import SplitBatchNorm


def test_outputs_come_in_the_order_of_the_inputs() -> None:
    torch.manual_seed(0)
    inputs = torch.arange(16.0)[:, None]
    seen: list[Tensor] = []

    def network(batch: Tensor) -> Tensor:
        seen.append(batch)
        return 2 * batch

    torch.testing.assert_close(computed_shuffled(network, inputs), 2 * inputs)
    assert not torch.equal(seen[0], inputs)
    assert torch.equal(seen[0].sort(dim=0).values, inputs)


def test_the_parts_of_a_batch_norm_get_other_members_at_every_call() -> None:
    torch.manual_seed(0)
    norm = SplitBatchNorm(nn.BatchNorm1d(1, affine=False), 4).train()
    inputs = torch.randn(16, 1)
    plain = norm(inputs)
    first, second = (computed_shuffled(norm, inputs) for _ in range(2))
    assert not torch.allclose(first, plain)
    assert not torch.allclose(first, second)


def test_there_is_no_graph_and_the_layout_stays() -> None:
    layouts = []

    def network(batch: Tensor) -> Tensor:
        layouts.append(batch.is_contiguous(memory_format=torch.channels_last))
        outputs: Tensor = convolution(batch)
        return outputs

    convolution = nn.Conv2d(3, 2, 1)
    pixels = torch.randn(4, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    assert not computed_shuffled(network, pixels).requires_grad
    assert layouts == [True]
