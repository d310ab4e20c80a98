from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from twinlens.training.checkpoint import DualEncoderSpec, build_model
from twinlens.training.errors import ConfigError
from twinlens.training.sections.tuning import TuningConfig
from twinlens.training.tuning.prepare import prepare

VIT = {"image_size": 32, "patch_size": 8, "layers": 1, "width": 16, "head_width": 8}
CLASS_NAMES = {"class_names": {"timm": "test_efficientnet", "classes": 5, "temperature": 1.0}}


def spec_with(spec: DualEncoderSpec, vision_cfg: dict[str, Any]) -> DualEncoderSpec:
    return dataclasses.replace(spec, model_cfg={**spec.model_cfg, "vision_cfg": vision_cfg})


@pytest.mark.parametrize(
    "vision_cfg",
    [
        VIT,
        {"backbone": {"timm": "test_vit", "arguments": {"patch_size": 8}}},
        {"timm_model_name": "test_vit", "image_size": 32},
    ],
)
def test_patches_are_left_out_in_training_alone(vision_cfg: dict[str, Any], tiny_spec: DualEncoderSpec) -> None:
    spec = spec_with(tiny_spec, vision_cfg)
    model: Any = build_model(spec)
    assert prepare(spec, model, TuningConfig(patch_dropout=0.5)) == spec
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        model.eval()
        assert torch.equal(model.encode_image(pixels), model.encode_image(pixels))
        model.train()
        assert not torch.allclose(model.encode_image(pixels), model.encode_image(pixels))
    build_model(spec).load_state_dict(model.state_dict())


def test_a_network_without_patches_drops_none(tiny_spec: DualEncoderSpec) -> None:
    with pytest.raises(ConfigError, match="patch_dropout is for Vision Transformers"):
        prepare(tiny_spec, build_model(tiny_spec), TuningConfig(patch_dropout=0.5))


def test_a_residual_changes_no_vector_and_is_part_of_the_description(tiny_spec: DualEncoderSpec) -> None:
    spec = spec_with(tiny_spec, CLASS_NAMES)
    model: Any = build_model(spec).eval()
    model.visual.class_embeddings.normal_()
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        before = model.encode_image(pixels)
        changed = prepare(spec, model, TuningConfig(lock_image=True, image_residual=True))
        torch.testing.assert_close(model.encode_image(pixels), before)
    build_model(changed).load_state_dict(model.state_dict())
    assert prepare(changed, model, TuningConfig(image_residual=True)) == changed


def test_a_tower_with_a_projection_takes_no_residual(tiny_spec: DualEncoderSpec) -> None:
    with pytest.raises(ConfigError, match="joined through class names"):
        prepare(tiny_spec, build_model(tiny_spec), TuningConfig(image_residual=True))
