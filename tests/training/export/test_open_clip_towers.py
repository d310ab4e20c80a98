from __future__ import annotations

from typing import Any

import pytest
import torch
from open_clip.model import CLIP, CustomTextCLIP

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.export.causal_text import CausalTextTower, CocaTextTower
from twinlens.training.export.errors import ExportError
from twinlens.training.export.open_clip_towers import open_clip_towers, scoring_rule
from twinlens.training.tokenizers import clip_tokenizer

VISION = {"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8}
TEXT = {"context_length": 12, "vocab_size": 50, "width": 32, "heads": 2, "layers": 2}
SPEC = PreprocessSpec(size=16, resize_size=16, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
END = 49


def towers_of(model: torch.nn.Module, **text_cfg: Any) -> Any:
    return open_clip_towers(model, SPEC, clip_tokenizer(12).spec, "{}", {"vision_cfg": VISION, "text_cfg": text_cfg})


def padded(rows: list[list[int]], length: int) -> torch.Tensor:
    return torch.tensor([row + [0] * (length - len(row)) for row in rows])


ROWS = [[48, 5, END], [48, 7, 8, 9, 10, END], [48, END]]


@pytest.mark.parametrize("kind", ["clip", "custom", "eos"])
def test_a_causal_text_tower_gives_the_padded_result_without_the_padding(kind: str) -> None:
    torch.manual_seed(0)
    text_cfg = {**TEXT, **({"pool_type": "eos", "eos_id": END} if kind == "eos" else {})}
    build = CLIP if kind == "clip" else CustomTextCLIP
    model = build(16, dict(VISION), text_cfg)
    _, text = towers_of(model, **text_cfg)
    assert not text.spec.pad_to_context
    assert isinstance(text.module, CausalTextTower)
    with torch.no_grad():
        whole = model.encode_text(padded(ROWS, 12))
        short = text.module(padded(ROWS, 6))
    torch.testing.assert_close(short, whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("text_cfg", [{"no_causal_mask": True}, {"pool_type": "last"}, {"pool_type": "first"}])
def test_a_text_tower_that_sees_the_padding_keeps_the_whole_window(text_cfg: dict[str, Any]) -> None:
    _, text = towers_of(CustomTextCLIP(16, dict(VISION), {**TEXT, **text_cfg}))
    assert text.spec.pad_to_context


def test_scores_become_probabilities_by_the_models_own_rule() -> None:
    softmax = scoring_rule(CLIP(16, dict(VISION), dict(TEXT), init_logit_scale=2.0))
    assert softmax.rule == "softmax"
    assert softmax.scale == pytest.approx(7.389056, rel=1e-6)
    sigmoid = scoring_rule(CLIP(16, dict(VISION), dict(TEXT), init_logit_scale=2.0, init_logit_bias=-10.0))
    assert (sigmoid.rule, sigmoid.bias) == ("sigmoid", -10.0)


def test_a_model_without_towers_or_scale_is_refused() -> None:
    with pytest.raises(ExportError, match="Linear is not a model with an image and a text tower"):
        towers_of(torch.nn.Linear(2, 2))
    with pytest.raises(ExportError, match="no finite logit_scale"):
        scoring_rule(torch.nn.Linear(2, 2))


def coca(*, correct_mask: bool = False) -> Any:
    torch.manual_seed(0)
    model = CustomTextCLIP(16, dict(VISION), {**TEXT, "embed_cls": True, "output_tokens": True})
    model.text.correct_cls_mask = correct_mask
    with torch.no_grad():
        for weights in model.text.parameters():
            weights.mul_(6.0).add_(0.1 * torch.randn(weights.shape))
    return model.eval()


@pytest.mark.parametrize("length", range(1, 13))
def test_cocas_tower_gives_the_padded_result_for_every_length(length: int) -> None:
    model = coca()
    _, text = towers_of(model, embed_cls=True)
    assert isinstance(text.module, CocaTextTower)
    chance = torch.Generator().manual_seed(length)
    rows = torch.randint(1, END, (5, length), generator=chance)
    rows[0, length // 2 :] = 0  # shorter texts beside it: padding within the batch
    # An exclamation mark glued to another sign has id 0, which the tower takes for padding.
    rows[1, length // 3] = 0
    whole = torch.cat([rows, torch.zeros(5, 12 - length, dtype=rows.dtype)], dim=1)
    with torch.no_grad():
        wanted, found = model.text(whole)[0], text.module(rows)
    unit = torch.nn.functional.normalize
    assert (unit(found, dim=-1) - unit(wanted, dim=-1)).abs().max() <= 1e-5
    if length > 1:  # so that the rows differ
        others = unit(wanted, dim=-1) @ unit(wanted, dim=-1).T
        assert others.fill_diagonal_(-1.0).max() < 0.999


def test_cocas_tower_with_the_mended_mask_keeps_the_whole_window() -> None:
    _, text = towers_of(coca(correct_mask=True), embed_cls=True)
    assert text.spec.pad_to_context


def test_dropout_of_any_kind_is_off_in_the_towers() -> None:
    model = CLIP(16, {**VISION, "patch_dropout": 0.5}, dict(TEXT)).train()
    image, _ = towers_of(model)
    pixels = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(image.module(pixels), image.module(pixels), atol=0, rtol=0)


def test_half_precision_weights_give_float32_towers() -> None:
    image, text = towers_of(CLIP(16, dict(VISION), dict(TEXT)).half())
    tensors = (*image.module.state_dict().values(), *text.module.state_dict().values(), *text.module.buffers())
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


def test_equal_ids_pool_at_the_first_end_token() -> None:
    """A row that holds the end token twice, as CLIP's transformers tokenizer pads with it."""
    torch.manual_seed(0)
    model = CLIP(16, dict(VISION), dict(TEXT)).eval()
    _, text = towers_of(model)
    twice = torch.tensor([[48, 5, END, END, END, END], [48, 7, 8, END, 3, END]])
    with torch.no_grad():
        torch.testing.assert_close(text.module(twice), text.module(twice[:, :4]))
