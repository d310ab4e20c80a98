from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_hugging_face
from twinlens.training.export.errors import ExportError
from twinlens.training.pull.families import towers_of
from twinlens.training.pull.source import Choices, parse_source
from twinlens.training.torch_file import read_torch_file
from twinlens.training.towers.transformers_config import config_of

pytest.importorskip("transformers")

BERT: dict[str, Any] = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"auto_map": {"AutoModel": "own.Model"}}, "asks for code of its own"),
        ({"attn_implementation": "kernels-community/flash-attn"}, "must be eager or sdpa"),
        ({"vision_config": {"_attn_implementation": "someone/kernel"}}, "must be eager or sdpa"),
    ],
)
def test_a_description_that_asks_for_code_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config_of(BERT | asked)
    assert config_of(BERT | {"attn_implementation": "eager"}).hidden_size == 8


def test_layers_without_end_are_refused() -> None:
    with pytest.raises(ExportError, match="it asks for 1,000,000 layers"):
        config_of(BERT | {"num_hidden_layers": 1_000_000})


def test_what_is_kept_of_a_pulled_model_does_not_tell_where_it_lay(tmp_path: Path) -> None:
    tiny = tiny_hugging_face.sentence_model(tmp_path, "bert", "mean")
    keep = towers_of(parse_source(tiny.source), Choices(), lambda _: None).keep
    assert keep is not None
    keep(tmp_path / "checkpoint.pt")
    spec = json.loads(read_torch_file(tmp_path / "checkpoint.pt")["spec"])
    assert spec["text_cfg"]["transformers"]["config"]["model_type"] == "bert"
    assert str(tmp_path) not in json.dumps(spec)
