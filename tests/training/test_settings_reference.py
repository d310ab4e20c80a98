"""docs/reference/training.md tells every key of a file, and what it means. (`make check` holds it against the code.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from twinlens.training.config import TrainConfig
from twinlens.training.image_config import ImageTrainConfig
from twinlens.training.known_keys import dotted_keys

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "training.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("config", [ImageTrainConfig, TrainConfig])
def test_every_key_has_a_row(config: type[ImageTrainConfig | TrainConfig]) -> None:
    keys = {name.rpartition(".")[2] for name in dotted_keys(config)} - {"method", "method_options"}
    assert keys <= {key for key, *_ in ROWS}


def test_every_row_tells_values_and_a_meaning() -> None:
    assert len(ROWS) > 100
    assert [key for key, values, _, meaning in ROWS if not values.strip() or not meaning.strip()] == []
