from __future__ import annotations

from typing import Any

import pytest
import torch
from open_clip.model import CLIP, CustomTextCLIP

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.export.errors import ExportError
from twinlens.training.export.open_clip_towers import CausalTextTower, open_clip_towers, scoring_rule
from twinlens.training.tokenizers import clip_text_spec

VISION = {"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8}
TEXT = {"context_length": 12, "vocab_size": 50, "width": 32, "heads": 2, "layers": 2}
SPEC = PreprocessSpec(size=16, resize_size=16, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
END = 49


def towers_of(model: torch.nn.Module, **text_cfg: Any) -> Any:
    return open_clip_towers(model, SPEC, clip_text_spec(12), "{}", {"vision_cfg": VISION, "text_cfg": text_cfg})


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


@pytest.mark.parametrize("text_cfg", [{"no_causal_mask": True}, {"pool_type": "last"}, {"embed_cls": True}])
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
