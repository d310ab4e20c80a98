"""The dual encoder computes what its open_clip model computes, without what changes nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from open_clip.model import CLIP, CustomTextCLIP
from torch.nn.functional import normalize

from twinlens.training.modules import causal_text, dual_encoder
from twinlens.training.modules.dual_encoder import DualEncoder

VISION = {"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8}
TEXT = {"context_length": 20, "vocab_size": 50, "width": 32, "heads": 2, "layers": 2}
END = 49
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def model_of(kind: str) -> Any:
    torch.manual_seed(0)
    more: dict[str, Any] = {
        "eos": {"pool_type": "eos", "eos_id": END},
        "linear": {"proj_type": "linear", "proj_bias": True},
        "sees padding": {"no_causal_mask": True, "pool_type": "last"},
    }.get(kind, {})
    return (CLIP if kind == "clip" else CustomTextCLIP)(16, dict(VISION), {**TEXT, **more})


def rows(*lengths: int) -> torch.Tensor:
    ids = torch.zeros(len(lengths), 20, dtype=torch.int64)
    for row, length in enumerate(lengths):
        ids[row, : length - 1] = torch.randint(1, 48, (length - 1,))
        ids[row, length - 1] = END
    return ids


@pytest.mark.parametrize("kind", ["clip", "custom", "eos", "linear", "sees padding"])
@pytest.mark.parametrize(
    "lengths", [(3, 6, 2), (20, 9, 8), (9, 3, 5, 17) * 10], ids=["short", "whole window", "in groups"]
)
def test_texts_and_their_gradients_are_those_of_the_padded_rows(kind: str, lengths: tuple[int, ...]) -> None:
    model = model_of(kind)
    ids = rows(*lengths)
    loss_of = torch.randn(len(lengths), 16) / len(lengths)
    expected = normalize(model.encode_text(ids), dim=-1)
    torch.autograd.backward((expected * loss_of).sum())
    wanted = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    found = DualEncoder(model, MEAN, STD).texts(ids)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    torch.autograd.backward((found * loss_of).sum())
    assert {name for name, p in model.named_parameters() if p.grad is not None} == set(wanted)
    for name, gradient in wanted.items():
        torch.testing.assert_close(model.get_parameter(name).grad, gradient, atol=1e-5, rtol=1e-4)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens attend to each other, call by call."""
    found: list[int] = []

    def seen(device: torch.device, tokens: int) -> AbstractContextManager[None]:
        del device
        found.append(tokens)
        return nullcontext()

    for module in (dual_encoder, causal_text):
        monkeypatch.setattr(module, "short_attention", seen)
    return found


def test_padding_behind_the_longest_caption_is_not_computed(computed: list[int]) -> None:
    towers = DualEncoder(model_of("clip"), MEAN, STD)
    towers.texts(rows(3, 6))
    towers.texts(rows(3, 9))
    towers.texts(rows(3, 20))
    towers.images(torch.zeros(2, 16, 16, 3, dtype=torch.uint8))
    assert computed == [8, 12, 20, 5]


def test_captions_of_like_length_are_computed_together(computed: list[int]) -> None:
    model = model_of("clip")
    lengths = [3 + number % 4 for number in range(60)] + [19, 18, 10, 9]
    ids = rows(*lengths)[torch.randperm(64)]
    found = DualEncoder(model, MEAN, STD).texts(ids)
    # A quarter of the rows has up to 3 tokens, one up to 4, one up to 5, one all others: 4, 8 and 20 with padding.
    assert computed == [4, 8, 20]
    torch.testing.assert_close(found, normalize(model.encode_text(ids), dim=-1), atol=1e-6, rtol=0)


def test_pixels_that_are_normalised_already_are_taken_as_they_are() -> None:
    towers = DualEncoder(model_of("clip"), MEAN, STD)
    stored = torch.randint(0, 256, (3, 16, 16, 3), dtype=torch.uint8)
    normalised = (stored / 255.0 - torch.tensor(MEAN)) / torch.tensor(STD)
    torch.testing.assert_close(towers.images(normalised), towers.images(stored), atol=1e-6, rtol=0)


def test_filters_lie_in_channels_last_memory_and_stay_the_same_parameters() -> None:
    model = CLIP(16, {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8}, dict(TEXT))
    before = list(model.parameters())
    DualEncoder(model, MEAN, STD)
    assert all(one is other for one, other in zip(before, model.parameters(), strict=True))
    filters = model.visual.layer1[0].conv2.weight
    assert filters.is_contiguous(memory_format=torch.channels_last)
