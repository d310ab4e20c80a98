"""Shared parts of the training tests: small data, small towers."""

from __future__ import annotations

import pytest

from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.training.checkpoint import DualEncoderSpec
from twinlens.training.data.scenes import Scene, generate
from twinlens.training.data.vocabulary import learn_tokenizer

SIZE = 32
TINY_TOWERS = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": SIZE, "layers": [1, 1, 1, 1], "width": 8},
    "text_cfg": {"context_length": 24, "width": 32, "heads": 2, "layers": 1},
}


@pytest.fixture(scope="session")
def scenes() -> list[Scene]:
    return list(generate(64, seed=3, size=SIZE))


@pytest.fixture(scope="session")
def tiny_spec(scenes: list[Scene]) -> DualEncoderSpec:
    tokenizer_json, size = learn_tokenizer([scene.caption for scene in scenes], vocabulary_size=400)
    cfg = {**TINY_TOWERS, "text_cfg": {**TINY_TOWERS["text_cfg"], "vocab_size": size}}  # type: ignore[dict-item]
    return DualEncoderSpec(
        model_cfg=cfg,
        preprocess=PreprocessSpec(size=SIZE, resize_size=SIZE, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
        text=TextSpec(context_length=24, pad_id=0, pad_to_context=True, attention_mask=False),
        tokenizer_json=tokenizer_json,
        name="tiny",
    )
