"""Reads the section [augment] of a TOML file."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from twinlens.training.augment.recipe import AugmentRecipe
from twinlens.training.config import one_line, read_toml
from twinlens.training.errors import ConfigError


def read_recipe(path: Path) -> AugmentRecipe:
    """The recipe in a file, whatever else is in it.

    Raises:
        ConfigError: if the file cannot be read, has no such section, or a key is unknown or a value out of range.
    """
    content = read_toml(path)
    if "augment" not in content:
        raise ConfigError(f"{path} has no section [augment]")
    try:
        return AugmentRecipe.model_validate(content["augment"])
    except ValidationError as error:
        raise ConfigError(f"{path}: {one_line(error, AugmentRecipe, prefix='augment')}") from None
