from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.training.conftest import TINY_TOWERS
from twinlens.encoders.tokenise import TextTokenizer
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, build_model, save_checkpoint
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
