from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.training.encoded_rows import encoded_rows


def test_rows_come_in_the_order_asked_for_a_few_at_a_time() -> None:
    inputs = np.arange(300, dtype=np.float32)[:, None]
    rows = np.random.default_rng(0).permutation(300)[:150]
    seen: list[int] = []

    def encode(part: Tensor) -> Tensor:
        seen.append(len(part))
        return (2 * part).bfloat16() if len(seen) > 2 else 2 * part

    found = encoded_rows(encode, inputs, rows, torch.device("cpu"))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[:, 0], 2 * rows, rtol=1e-2)
    assert sum(seen) == 150
    assert max(seen) < 100


def test_no_graph_is_kept() -> None:
    layer, graphs = nn.Linear(2, 3), []

    def encode(part: Tensor) -> Tensor:
        output: Tensor = layer(part)
        graphs.append(output.requires_grad)
        return output

    encoded_rows(encode, np.ones((4, 2), dtype=np.float32), np.arange(4), torch.device("cpu"))
    assert graphs == [False]
