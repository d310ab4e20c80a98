from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from twinlens.training.export.errors import ExportError
from twinlens.training.starter.class_names import (
    CENTRING,
    TEMPERATURE,
    embed_class_names,
    imagenet_class_names,
)
from twinlens.training.starter.minilm import load_minilm
from twinlens.training.starter.packages import MINILM_TOKENIZER, MINILM_WEIGHTS, read_pinned
from twinlens.training.towers.class_names import ClassNameTower


class Given(nn.Module):
    """A classifier whose pixels are its logits."""

    def forward(self, pixels: Tensor) -> Tensor:
        return pixels


def test_a_picture_lies_at_the_mean_of_the_classes_weighted_by_softened_probabilities() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 200, generator=generator) * 3
    classes = torch.randn(200, 8, generator=generator)
    found = ClassNameTower(Given(), classes, TEMPERATURE)(logits)
    for row, embedding in zip(logits.double(), found, strict=True):
        weights = [float(w) for w in torch.exp(row / TEMPERATURE) / torch.exp(row / TEMPERATURE).sum()]
        expected = sum(weight * each.double() for weight, each in zip(weights, classes, strict=True))
        torch.testing.assert_close(embedding.double(), expected, atol=1e-5, rtol=0)


def test_class_embeddings_lose_most_of_what_they_share_whatever_the_threads() -> None:
    model = load_minilm(read_pinned(MINILM_WEIGHTS))
    tokenizer_json = read_pinned(MINILM_TOKENIZER).decode()
    names = ["tabby cat", "Golden Retriever", "sports car", "a very long name of a thing nobody has seen"]
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(embed_class_names(names, model, tokenizer_json))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    # The rows are unit vectors less CENTRING of their mean, so (1 - CENTRING) of that mean is left.
    left = results[0].double().mean(dim=0)
    whole = results[0].double() + left * CENTRING / (1 - CENTRING)
    torch.testing.assert_close(whole.norm(dim=1), torch.ones(len(names), dtype=torch.float64), atol=1e-5, rtol=0)
    assert model.words.weight.dtype == torch.float32


def test_another_order_of_the_class_names_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from open_clip import zero_shot_metadata

    monkeypatch.setattr(zero_shot_metadata, "IMAGENET_CLASSNAMES", sorted(imagenet_class_names()))
    with pytest.raises(ExportError, match="another order"):
        imagenet_class_names()


@pytest.mark.shared
def test_the_names_are_in_the_order_of_the_classifier(shared_data: Path) -> None:
    names = imagenet_class_names()
    for line in (shared_data / "imagenet_names" / "labels.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert names[row["index"]] == row["label"]
