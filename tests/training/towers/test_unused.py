from __future__ import annotations

from typing import Any

import torch

from twinlens.training.checkpoint import DualEncoderSpec, build_model
from twinlens.training.towers.fit import check_fit
from twinlens.training.towers.unused import rest_unused


def test_what_no_vector_depends_on_is_not_trained_and_the_rest_is(tiny_spec: DualEncoderSpec) -> None:
    model: Any = build_model(tiny_spec).train()
    model.visual.extra = torch.nn.Linear(2, 2)
    model.visual.bn1.eval()
    statistics = {name: value.clone() for name, value in model.named_buffers()}
    assert rest_unused(model, tiny_spec.preprocess, tiny_spec.text) == ["visual.extra.weight", "visual.extra.bias"]
    resting = {name for name, each in model.named_parameters() if not each.requires_grad}
    assert resting == {"visual.extra.weight", "visual.extra.bias"}
    assert model.training
    assert not model.visual.bn1.training
    assert all(torch.equal(value, statistics[name]) for name, value in model.named_buffers())
    assert all(each.grad is None for each in model.parameters())


def test_padding_may_be_the_last_id_of_the_vocabulary(tiny_spec: DualEncoderSpec) -> None:
    """As in CLIP's tokenizer."""
    model: Any = build_model(tiny_spec)
    text = tiny_spec.text.model_copy(update={"pad_id": model.vocab_size - 1})
    check_fit(model, tiny_spec.preprocess, text)
    assert rest_unused(model, tiny_spec.preprocess, text) == []
