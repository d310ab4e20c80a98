from __future__ import annotations

import torch
from torch import Tensor

from twinlens.training.modules.multi_crop import encode_crops


def test_each_size_is_encoded_in_one_pass_and_views_keep_their_order() -> None:
    seen: list[tuple[int, ...]] = []

    def encode(pixels: Tensor) -> Tensor:
        seen.append(tuple(pixels.shape))
        return pixels.mean(dim=(2, 3))

    views = [torch.full((2, 3, side, side), float(value)) for value, side in enumerate([8, 8, 4, 4, 4])]
    features = encode_crops(encode, views)
    assert seen == [(4, 3, 8, 8), (6, 3, 4, 4)]
    for value, each in enumerate(features):
        torch.testing.assert_close(each, torch.full((2, 3), float(value)))


def test_crops_stay_in_channels_last_memory() -> None:
    def encode(pixels: Tensor) -> Tensor:
        assert pixels.is_contiguous(memory_format=torch.channels_last)
        return pixels.mean(dim=(2, 3))

    views = [torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last) for _ in range(2)]
    assert len(encode_crops(encode, views)) == 2
