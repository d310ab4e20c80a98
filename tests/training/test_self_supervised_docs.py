"""docs/self_supervised.md names methods and settings that exist."""

from __future__ import annotations

import re
from pathlib import Path

from twinlens.training.image_config import ImageTrainConfig, read_image_config
from twinlens.training.methods.registry import IMAGE_METHODS, image_method

PAGE = (Path(__file__).parents[2] / "docs" / "self_supervised.md").read_text(encoding="utf-8")


def test_every_method_is_named_in_the_table() -> None:
    table = PAGE.partition("## Methods")[2].partition("\n\nProjection heads")[0]
    assert set(re.findall(r"`(\w+)`[,|\s]", table)) >= IMAGE_METHODS.keys()


def test_every_setting_that_is_named_exists() -> None:
    sections = ImageTrainConfig.model_fields
    named = set(re.findall(r"\b(data|model|augment|method|train|knn)\.(?!json)(\w+)", PAGE))
    assert ("train", "chunk_size") in named
    options = {key for method in IMAGE_METHODS for key in image_method(method).Options.model_fields}
    for section, key in named:
        known = options if section == "method" else sections[section].annotation.model_fields  # type: ignore[union-attr]
        assert key in known, f"{section}.{key}"


def test_the_file_that_is_shown_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "simclr.toml"
    file.write_text(PAGE.partition("```toml\n")[2].partition("```")[0])
    config = read_image_config("simclr", file)
    assert (config.data.path, config.knn.test) == (tmp_path / "photos", tmp_path / "held-out")
    assert (config.size, config.train.steps, config.train.epochs) == (160, None, 200)
