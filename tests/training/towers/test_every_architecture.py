"""Every family of configurations that open_clip lists, shrunk: it builds, takes a step, and is built again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch

from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.config import TrainConfig
from twinlens.training.errors import ConfigError
from twinlens.training.sections.model import ModelConfig
from twinlens.training.start import Scratch, start_of
from twinlens.training.train import train

SIZE = 32
TEXT = {"context_length": 16, "width": 16, "heads": 2, "layers": 1}
VIT = {"image_size": SIZE, "patch_size": 16, "layers": 1, "width": 16, "head_width": 8}


def timm(name: str, **more: Any) -> dict[str, Any]:
    return {"image_size": SIZE, "timm_model_name": name, "timm_model_pretrained": True, **more}


FAMILIES: dict[str, dict[str, Any]] = {
    "ViT": {"vision_cfg": VIT},
    "ViT, quick GELU": {"vision_cfg": VIT, "quick_gelu": True},
    "ViT, layer scale": {"vision_cfg": {**VIT, "ls_init_value": 1e-4, "mlp_ratio": 2.0}},
    "ResNet": {"vision_cfg": {"image_size": SIZE, "layers": [1, 1, 1, 1], "width": 8}},
    "CLIPA": {
        "vision_cfg": {**VIT, "no_ln_pre": True, "pool_type": "avg", "final_ln_after_pool": True},
        "text_cfg": {**TEXT, "no_causal_mask": True, "pool_type": "last", "hf_tokenizer_name": "bert-base-uncased"},
    },
    "worldwide": {"vision_cfg": VIT, "text_cfg": {**TEXT, "pool_type": "eos", "eos_id": 2}},
    "SigLIP": {
        "custom_text": True,
        "init_logit_bias": -10,
        "vision_cfg": timm("test_vit", timm_pool="map", timm_proj="none"),
        "text_cfg": {
            **TEXT,
            "no_causal_mask": True,
            "proj_bias": True,
            "pool_type": "last",
            "norm_kwargs": {"eps": 1e-6},
            "act_kwargs": {"approximate": "tanh"},
        },
        "embed_dim": 64,
    },
    "CoCa": {
        "custom_text": True,
        "vision_cfg": {**VIT, "attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True},
        "text_cfg": {**TEXT, "embed_cls": True, "output_tokens": True},
        "multimodal_cfg": {"context_length": 16, "vocab_size": 100, "width": 16, "heads": 2, "layers": 1},
    },
    "ConvNeXt": {"vision_cfg": timm("test_convnext", timm_pool="", timm_proj="linear", timm_drop=0.0)},
    "ConvNeXt, MLP": {"vision_cfg": timm("test_convnext", timm_pool="", timm_proj="mlp", timm_drop_path=0.1)},
    "EVA": {
        "custom_text": True,
        "vision_cfg": {**timm("eva02_tiny_patch14_224", timm_pool="token"), "image_size": 224},
    },
    "MobileCLIP": {
        "custom_text": True,
        "vision_cfg": timm("fastvit_t8", timm_pool="avg"),
        "text_cfg": {**TEXT, "no_causal_mask": True},
    },
    "timm, ViT": {"vision_cfg": {**timm("test_vit3", timm_pool="", timm_proj="linear"), "image_size": 160}},
    "backbone": {"vision_cfg": {"image_size": SIZE, "backbone": {"timm": "test_resnet"}}},
    "backbone, ViT": {"vision_cfg": {"image_size": SIZE, "backbone": {"timm": "test_vit"}}},
}


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.slow) if name == "EVA" else name for name in FAMILIES]
)
def test_a_family_is_trained_from_scratch(family: str, tmp_path: Path) -> None:
    model = {"embed_dim": 16, "text_cfg": TEXT, **FAMILIES[family]}
    config = TrainConfig.model_validate(
        {
            "data": {"source": "scenes", "count": 8, "seed": 3},
            "model": {"config": model},
            "train": {"steps": 1, "batch_size": 4, "warmup_steps": 0, "log_every": 1, "learning_rate": 1e-3},
        }
    )
    result = train(config, tmp_path / "run", lambda *_: None)
    assert result.last["loss"] > 0
    spec, built, _ = load_checkpoint(result.checkpoint)
    start = start_of(ModelConfig(from_checkpoint=result.checkpoint))
    pixels, ids = (
        torch.randn(2, 3, spec.preprocess.size, spec.preprocess.size),
        torch.randint(1, 50, (2, spec.text.context_length)),
    )
    with torch.no_grad():
        image, text = built.encode_image(pixels), built.encode_text(ids)  # type: ignore[operator]
    assert image.shape == text.shape == (2, model["embed_dim"])
    assert start.step == 1


@pytest.mark.parametrize("name", open_clip.list_models())
def test_what_open_clip_lists_can_be_started_from_scratch_or_says_what_to_do(name: str) -> None:
    if "hf_model_name" in open_clip.get_model_config(name)["text_cfg"]:
        with pytest.raises(ConfigError, match="text_checkpoint"):
            start_of(ModelConfig(open_clip=name))
    else:
        assert isinstance(start_of(ModelConfig(open_clip=name)), Scratch)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vision_cfg": timm("test_vit3", timm_pool="", timm_proj="linear")},
            r"the image tower does not take pictures of 32x32: Input height \(32\) doesn't match model \(160\)",
        ),
        (
            {"vision_cfg": timm("test_convnext", timm_pool="avg", timm_proj="none")},
            "the image tower gives vectors of 64 numbers, the text tower of 16",
        ),
    ],
)
def test_towers_that_do_not_fit_are_one_line_before_the_first_step(changes: dict[str, Any], message: str) -> None:
    start = start_of(ModelConfig(config={"embed_dim": 16, "text_cfg": TEXT, **changes}))
    with pytest.raises(ConfigError, match=message):
        start.build(["a red circle"])
