from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.training.towers.build import build_towers
from twinlens.training.towers.transformers_text import build_transformers_text
from twinlens.training.towers.two_towers import TwoTowers
from twinlens.training.tuning.blocks import Parts, locked_names, parts_of

TEXT = {"context_length": 8, "vocab_size": 30, "width": 16, "heads": 2, "layers": 3}
VIT = {"image_size": 32, "patch_size": 16, "layers": 4, "width": 16, "head_width": 8}


def model_of(vision_cfg: dict[str, Any], **more: Any) -> nn.Module:
    preprocess = PreprocessSpec(size=32, resize_size=32, mean=(0.5,) * 3, std=(0.5,) * 3)
    text = TextSpec(context_length=8, pad_id=0, pad_to_context=True, attention_mask=False)
    return build_towers({"embed_dim": 8, "vision_cfg": vision_cfg, "text_cfg": TEXT, **more}, preprocess, text)


@pytest.mark.parametrize("custom_text", [False, True])
def test_the_parts_of_clips_transformers(custom_text: bool) -> None:
    parts = parts_of(model_of(VIT, custom_text=custom_text))
    image, text = parts["image"], parts["text"]
    assert set(image.stem) == {
        f"visual.{name}"
        for name in ("class_embedding", "positional_embedding", "conv1.weight", "ln_pre.weight", "ln_pre.bias")
    }
    assert set(image.head) == {"visual.proj", "visual.ln_post.weight", "visual.ln_post.bias"}
    assert [block[0].split(".mlp")[0].rsplit(".", 2)[0] for block in image.blocks] == [
        f"visual.transformer.resblocks.{i}" for i in range(4)
    ]
    own = "text." if custom_text else ""
    assert set(text.stem) == {f"{own}positional_embedding", f"{own}token_embedding.weight"}
    assert set(text.head) == {f"{own}{name}" for name in ("text_projection", "ln_final.weight", "ln_final.bias")}
    assert len(text.blocks) == 3


@pytest.mark.parametrize(
    ("vision_cfg", "blocks", "stem", "head"),
    [
        ({"image_size": 32, "layers": [1, 2, 1, 1], "width": 8}, 5, "conv1.weight", "attnpool.positional_embedding"),
        ({"backbone": {"timm": "test_resnet"}}, 4, "backbone.trunk.conv1", "projection.weight"),
        ({"backbone": {"timm": "test_vit"}}, 6, "backbone.trunk.pos_embed", "backbone.trunk.norm.weight"),
        ({"backbone": {"timm": "test_convnext"}}, 4, "backbone.trunk.stem.0.weight", "projection.weight"),
        (
            {"backbone": {"timm": "test_efficientnet"}},
            5,
            "backbone.trunk.conv_stem.weight",
            "backbone.trunk.conv_head.weight",
        ),
        (
            {"timm_model_name": "test_vit", "timm_proj": "mlp", "timm_pool": "", "image_size": 32},
            6,
            "trunk.patch_embed.proj.weight",
            "head.mlp.fc1.weight",
        ),
        (
            {"class_names": {"timm": "test_efficientnet", "classes": 5, "temperature": 1.0, "residual": True}},
            5,
            "classifier.conv_stem.weight",
            "residual.weight",
        ),
    ],
)
def test_the_parts_of_other_image_towers(vision_cfg: dict[str, Any], blocks: int, stem: str, head: str) -> None:
    model = model_of(vision_cfg)
    parts = parts_of(model)["image"]
    assert len(parts.blocks) == blocks
    assert any(name.startswith(f"visual.{stem}") for name in parts.stem), parts.stem
    assert f"visual.{head}" in parts.head, parts.head
    everything = [name for layer in parts.layers for name in layer]
    assert sorted(everything) == sorted(name for name, _ in model.named_parameters() if name.startswith("visual."))


@pytest.mark.parametrize(
    ("kind", "blocks", "stem"),
    [
        ("bert", 2, "embeddings.word_embeddings"),
        ("albert", 1, "encoder.embedding_hidden_mapping_in"),  # all layers are one
        ("mpnet", 2, "encoder.relative_attention_bias"),  # every layer's
    ],
)
def test_the_parts_of_text_encoders_of_transformers(kind: str, blocks: int, stem: str) -> None:
    pytest.importorskip("transformers")
    config = {"model_type": kind, "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config |= {"intermediate_size": 16, "max_position_embeddings": 20, "pad_token_id": 0}
    text = TextSpec(context_length=8, pad_id=0, pad_to_context=False, attention_mask=True)
    model = TwoTowers(nn.Identity(), build_transformers_text({"config": config}, 8, text), pad_id=0, masked=True)
    parts = parts_of(model)["text"]
    assert len(parts.blocks) == blocks
    assert f"text.encoder.{stem}.weight" in parts.stem
    assert parts.head == ("text.head.0.weight",)


PARTS = Parts(("a.embed",), (("a.blocks.0.w",), ("a.blocks.1.w",)), ("a.norm", "a.residual.weight"))


@pytest.mark.parametrize(
    ("lock", "locked"),
    [
        (False, set()),
        (True, {"a.embed", "a.blocks.0.w", "a.blocks.1.w", "a.norm"}),
        (0, {"a.embed", "a.blocks.0.w", "a.blocks.1.w"}),
        (1, {"a.embed", "a.blocks.0.w"}),
        (2, {"a.embed"}),
        (3, set()),
    ],
)
def test_a_lock_is_of_all_but_the_last_blocks(lock: bool | int, locked: set[str]) -> None:
    assert locked_names(PARTS, lock) == locked
