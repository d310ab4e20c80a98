"""The configuration of `twinlens train`: one frozen object, read once from a TOML file."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from twinlens.training.config_layers import relative_to, with_settings
from twinlens.training.errors import ConfigError
from twinlens.training.known_keys import perhaps_key, without_tags
from twinlens.training.sections.augment import PairAugmentConfig
from twinlens.training.sections.data import SOURCES, DataConfig
from twinlens.training.sections.frozen import Frozen
from twinlens.training.sections.hard_negatives import HardNegativesConfig
from twinlens.training.sections.loss import LossConfig
from twinlens.training.sections.model import ModelConfig
from twinlens.training.sections.run import RunConfig
from twinlens.training.sections.tuning import TuningConfig
from twinlens.training.sections.validation import ValidationConfig

# Section and key of what is a path.
PATHS = (
    ("data", "path"),
    ("data", "images"),
    ("model", "from_checkpoint"),
    ("model", "image_checkpoint"),
    ("model", "text_checkpoint"),
    ("hard_negatives", "manifest"),
    ("validation", "data", "path"),
    ("validation", "data", "images"),
    ("validation", "forgetting", "path"),
    ("validation", "forgetting", "images"),
)


class WholeConfig(Frozen):
    """Base of what describes a whole run."""

    def digest(self) -> str:
        """SHA-256 of the configuration, whatever the layout of its file."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


class TrainConfig(WholeConfig):
    """The whole file."""

    data: DataConfig
    model: ModelConfig
    train: RunConfig = RunConfig()
    tuning: TuningConfig = TuningConfig()
    loss: LossConfig = LossConfig()
    augment: PairAugmentConfig | None = None
    hard_negatives: HardNegativesConfig | None = None
    validation: ValidationConfig | None = None


def read_config(path: Path, settings: Sequence[str] = ()) -> TrainConfig:
    """Reads a TOML file; paths in it are relative to it.

    Args:
        path: The file.
        settings: Single values over it; see `with_settings`.

    Raises:
        ConfigError: if it is missing, not TOML, has an unknown key or a value out of range.
    """
    content = with_settings(relative_to(read_toml(path), path.parent, PATHS), settings)
    try:
        return TrainConfig.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{path}: {one_line(error, TrainConfig)}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        ConfigError: if it is missing, cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no configuration at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def one_line(error: ValidationError, model: type[BaseModel], *, prefix: str = "", others: Iterable[str] = ()) -> str:
    """The first thing that is wrong, by the key a person wrote, and what an unknown key may have meant.

    Args:
        error: What pydantic found.
        model: What it checked by.
        prefix: The section that was checked on its own.
        others: Further keys that there are elsewhere, dotted.
    """
    found = error.errors()
    first, where = found[0], _written_key(found[0], model, prefix)
    # Where a value may have one of several forms, each says why it is not it.
    of_key = [each for each in found if _written_key(each, model, prefix) == where]
    more = f" (and {len(found) - len(of_key)} more)" if len(found) > len(of_key) else ""
    match first["type"]:
        case "extra_forbidden":
            return f"unknown key {where}{perhaps_key(model, first['loc'], others, prefix=prefix)}{more}"
        case "missing":
            return f"{where} is missing{more}"
        case "union_tag_not_found":
            return f"{where}.source is missing: {_listed(SOURCES)}{more}"
        case "union_tag_invalid":
            return f"{where}.source must be {_listed(SOURCES)}{more}"
        case "value_error":
            return f"{where}: {first['ctx']['error']}{more}"
        case "tuple_type" | "list_type" if isinstance(first["input"], dict):
            return f"{where} is a list of tables: write [[{where}]]{more}"
        case _:
            told, *otherwise = dict.fromkeys(each["msg"] for each in of_key)
            forms = "".join(f" or {each.removeprefix('Input should be ')}" for each in otherwise)
            return f"{where}: {told[0].lower()}{told[1:]}{forms}, found {first['input']!r}{more}"


def _written_key(found: ErrorDetails, model: type[BaseModel], prefix: str) -> str:
    location = [str(part) for part in found["loc"]]
    unknown = location[-1:] if found["type"] == "extra_forbidden" else []
    known = without_tags(model, location[: len(location) - len(unknown)])
    return ".".join(part for part in (prefix, *known, *unknown) if part)


def _listed(values: Sequence[str]) -> str:
    *first, last = [f"'{value}'" for value in values]
    return f"{', '.join(first)} or {last}"
