from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from tests.training.conftest import TINY_TOWERS
from twinlens.encoders.tokenise import TextTokenizer
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, build_model, save_checkpoint
from twinlens.training.errors import CheckpointError, ConfigError
from twinlens.training.export.open_clip_towers import scoring_rule
from twinlens.training.sections.model import ModelConfig
from twinlens.training.start import start_of


def test_a_checkpoint_keeps_its_name_unless_another_is_given(tmp_path: Path, tiny_spec: DualEncoderSpec) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, tiny_spec, build_model(tiny_spec), CheckpointMeta())
    same = start_of(ModelConfig(from_checkpoint=path)).build([])[0]
    other = start_of(ModelConfig(from_checkpoint=path, name="other")).build([])[0]
    assert (same.name, other.name) == ("tiny", "other")
    assert dataclasses.replace(other, name="tiny") == same


def test_models_from_scratch_fit_the_loss_and_the_learned_vocabulary() -> None:
    text_cfg = {**TINY_TOWERS["text_cfg"], "pool_type": "eos", "eos_id": 2}  # type: ignore[dict-item]
    cfg = {**TINY_TOWERS, "text_cfg": text_cfg, "init_logit_bias": -10.0}
    spec, model = start_of(ModelConfig(config=cfg)).build(["a red circle left of a blue square"])
    assert scoring_rule(model).rule == "softmax"
    tokens = TextTokenizer(spec.tokenizer_json.encode(), spec.text)("a red circle").ids
    assert tokens[-1] == model.text_eos_id


def test_scale_and_bias_of_a_model_from_scratch_are_the_losss() -> None:
    start = start_of(ModelConfig(config=TINY_TOWERS))
    _, model = start.build(["a red circle"], log_scale=math.log(10), bias=-10.0)
    rule = scoring_rule(model)
    assert (rule.rule, rule.bias) == ("sigmoid", -10.0)
    assert rule.scale == pytest.approx(10)


def test_a_checkpoint_keeps_its_scale_where_the_loss_is_of_its_kind(tmp_path: Path, tiny_spec: DualEncoderSpec) -> None:
    """And takes the loss's scale and bias where it is of the other, which its description then says."""
    path = tmp_path / "checkpoint.pt"
    model = build_model(tiny_spec)
    with torch.no_grad():
        model.logit_scale.fill_(math.log(33))  # type: ignore[operator]
    save_checkpoint(path, tiny_spec, model, CheckpointMeta())
    spec, kept = start_of(ModelConfig(from_checkpoint=path)).build([], log_scale=0.0)
    assert spec == tiny_spec
    assert scoring_rule(kept).scale == pytest.approx(33)
    spec, other = start_of(ModelConfig(from_checkpoint=path)).build([], log_scale=math.log(10), bias=-10.0)
    assert (scoring_rule(other).rule, scoring_rule(other).bias) == ("sigmoid", -10.0)
    save_checkpoint(path, spec, other, CheckpointMeta())
    spec, back = start_of(ModelConfig(from_checkpoint=path)).build([], log_scale=math.log(20))
    assert scoring_rule(back).rule == "softmax"
    assert scoring_rule(back).scale == pytest.approx(20)
    build_model(spec).load_state_dict(back.state_dict())


@pytest.mark.parametrize(
    ("vision", "message"),
    [
        ({"image_size": 0}, r"model\.config\.vision_cfg\.image_size must be one number above 0, found 0"),
        ({"image_size": [16, 16]}, r"image_size must be one number above 0, found \[16, 16\]"),
        (
            {"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 0},
            "cannot build the model .*zero",
        ),
    ],
)
def test_sizes_that_no_tower_can_have_are_told_in_a_line(vision: dict[str, object], message: str) -> None:
    with pytest.raises((ConfigError, CheckpointError), match=message) as caught:
        start_of(ModelConfig(config={**TINY_TOWERS, "vision_cfg": vision})).build(["a red circle"])
    assert "\n" not in str(caught.value)
