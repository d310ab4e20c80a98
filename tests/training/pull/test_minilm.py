"""A real sentence-transformers model, pulled as a folder, against our own implementation of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twinlens.training.export.agreement import row_cosines
from twinlens.training.export.towers import TextExport
from twinlens.training.pull.families import towers_of
from twinlens.training.pull.source import Choices, parse_source
from twinlens.training.starter.minilm import MINILM_TEXT, load_minilm
from twinlens.training.starter.packages import MINILM_TOKENIZER, MINILM_WEIGHTS, read_pinned

CONFIG = {
    "model_type": "bert",
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-12,
}
TEXTS = ("a dog on the beach", "Zürich", "two small children, running!", "word " * 300, "猫")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    try:
        weights, tokenizer = read_pinned(MINILM_WEIGHTS), read_pinned(MINILM_TOKENIZER)
    except Exception as error:  # the extra `starter` is not installed
        pytest.skip(str(error))
    (tmp_path / "model.safetensors").write_bytes(weights)
    (tmp_path / "tokenizer.json").write_bytes(tokenizer)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    listed = [{"idx": i, "path": path, "type": f"x.{name}"} for i, (path, name) in enumerate(modules)]
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 256}))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return tmp_path


def test_it_is_the_starters_text_tower(folder: Path) -> None:
    pulled = towers_of(parse_source(f"hf:{folder}"), Choices(), say=lambda _: None)
    assert pulled.image is None
    assert pulled.text is not None
    assert pulled.text.spec == MINILM_TEXT
    ours = TextExport(load_minilm(read_pinned(MINILM_WEIGHTS)), MINILM_TEXT, pulled.text.tokenizer_json)
    wanted, found = (text.expected(text.tokenise(TEXTS)) for text in (ours, pulled.text))
    assert row_cosines(wanted, found).min() > 0.999999
