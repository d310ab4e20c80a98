"""Small torch towers to export."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.training.export.towers import ImageExport, TextExport

SIZE = 16
DIMENSION = 8


class TinyImage(nn.Module):
    """A convolution and a mean."""

    def __init__(self, dimension: int = DIMENSION) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, dimension, 5, stride=2)

    def forward(self, pixels: Tensor) -> Tensor:
        mean: Tensor = torch.relu(self.conv(pixels)).mean(dim=(2, 3))
        return mean


class TinyText(nn.Module):
    """A masked mean of word vectors."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, DIMENSION)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        weights = attention_mask.float().unsqueeze(-1)
        mean: Tensor = (self.embedding(input_ids) * weights).sum(1) / weights.sum(1)
        return mean


@pytest.fixture
def image_tower() -> ImageExport:
    torch.manual_seed(0)
    spec = PreprocessSpec(size=SIZE, resize_size=SIZE, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    return ImageExport(TinyImage().eval(), spec)


@pytest.fixture
def text_tower() -> TextExport:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[UNK]": 0, "a": 1, "photo": 2, "of": 3, "dog": 4, "red": 5}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(1)
    spec = TextSpec(context_length=32, pad_id=0, pad_to_context=False, attention_mask=True)
    return TextExport(TinyText(len(words)).eval(), spec, tokenizer.to_str())
