"""What a configuration is made of: a file, and single settings over it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twinlens.training.errors import ConfigError


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key; everything else, lists too, is replaced."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        tables = isinstance(old, Mapping) and isinstance(value, Mapping)
        both[key] = merged(old, value) if tables else value  # type: ignore[arg-type]
    return both


def with_settings(content: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Single settings over what was given before, the last one on top.

    A setting of `train.epochs` takes the place of the `train.steps` that stood before: beside them it would be nothing.

    Args:
        content: Of a file.
        settings: Each `section.key=value`, the value as TOML (a word that is no TOML value counts as a string).

    Raises:
        ConfigError: if a setting is not written so.
    """
    given = dict(content)
    for setting in settings:
        given = _given_later(given, _setting(setting))
    return given


def relative_to(content: dict[str, Any], folder: Path, keys: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Makes the paths of a file relative to the folder it lies in.

    Args:
        content: Of the file.
        folder: Where it lies.
        keys: Section, table in it where there is one, and key of each path.
    """
    for names in keys:
        value: Any = content
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        # An empty name stays one, and is refused; an address is the same from everywhere.
        if isinstance(value, str) and value and "://" not in value:
            above: Any = str(folder / value)
            for name in reversed(names):
                above = {name: above}
            content = merged(content, above)
    return content


def _given_later(before: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any]:
    train, new = before.get("train"), setting.get("train")
    if isinstance(train, Mapping) and isinstance(new, Mapping) and "epochs" in new:
        before = {**before, "train": {key: value for key, value in train.items() if key != "steps"}}
    return merged(before, setting)


def _setting(text: str) -> dict[str, Any]:
    name, equals, value = text.partition("=")
    parts = [part.strip() for part in name.split(".")]
    if not equals or not all(parts):
        raise ConfigError(f"--set takes SECTION.KEY=VALUE, for instance train.batch_size=128; found {text!r}")
    try:
        parsed: Any = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for part in reversed(parts):
        parsed = {part: parsed}
    return dict(parsed)
