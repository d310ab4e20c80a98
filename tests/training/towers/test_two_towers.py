from __future__ import annotations

import torch
from torch import Tensor, nn

from twinlens.training.towers.two_towers import TwoTowers

PAD = 0


class MeanOfWords(nn.Module):
    """Remembers how long its rows were."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(20, 4)
        self.lengths: list[int] = []

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        self.lengths.append(input_ids.shape[1])
        weights = attention_mask.unsqueeze(-1)
        mean: Tensor = (self.words(input_ids) * weights).sum(dim=1) / weights.sum(dim=1)
        return mean


def test_padding_is_masked_and_not_computed() -> None:
    tower = MeanOfWords()
    model = TwoTowers(nn.Flatten(), tower, pad_id=PAD, masked=True)
    padded = torch.tensor([[5, 6, 7, 0, 0, 0, 0, 0], [8, 9, 0, 0, 0, 0, 0, 0]])
    expected = torch.stack([tower.words.weight[[5, 6, 7]].mean(dim=0), tower.words.weight[[8, 9]].mean(dim=0)])
    torch.testing.assert_close(model.encode_text(padded), expected)
    assert tower.lengths == [3]


def test_a_tower_without_a_mask_is_given_its_ids_alone() -> None:
    words = nn.EmbeddingBag(20, 4)
    model = TwoTowers(nn.Flatten(), words, pad_id=PAD, masked=False)
    ids = torch.tensor([[5, 6, 0]])
    torch.testing.assert_close(model.encode_text(ids), words(ids))
