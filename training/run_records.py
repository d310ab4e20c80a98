"""What a run folder tells besides the weights."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinlens.training.errors import CheckpointError, ConfigError, first_line
from twinlens.training.run_files import CONFIG_FILE, DATA_FILE, ENVIRONMENT_FILE
from twinlens.training.versions import versions

RECORDS = (CONFIG_FILE, ENVIRONMENT_FILE, DATA_FILE)
PACKAGES = ("twinlens", "torch", "open_clip_torch", "timm", "pytorch-lightning", "tokenizers", "numpy", "pillow")


def write_records(out: Path, *, config: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Writes config.json, environment.json and data.json.

    Raises:
        CheckpointError: if the folder cannot be written to.
    """
    environment = {"python": platform.python_version(), "machine": platform.machine(), **versions(PACKAGES)}
    try:
        for name, record in zip(RECORDS, (config, environment, data), strict=True):
            (out / name).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"cannot write to {out}: {error.strerror or error}") from error


def check_same_run(out: Path, config: Mapping[str, Any]) -> None:
    """Refuses to go on with a run by another configuration than its own.

    Args:
        out: The run's folder.
        config: As it would be recorded.

    Raises:
        ConfigError: naming the method, or the first key that differs, and both values.
    """
    recorded = recorded_config(out)
    asked, found = (each.get("method", "clip") for each in (config, recorded))
    if found != asked:
        raise ConfigError(f"{out} is a run of {found}; it cannot go on as {asked}")
    ours, theirs = _flat(config), _flat(recorded)
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            raise ConfigError(
                f"{out} is a run with {key} = {theirs.get(key)}; it cannot go on with {ours.get(key)}: leave it out, "
                "or start a new run"
            )


def recorded_config(out: Path) -> dict[str, Any]:
    """The content of a run's config.json.

    Raises:
        ConfigError: if there is none, or it cannot be read.
    """
    path = out / CONFIG_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{out} holds no run: it has no {CONFIG_FILE}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {first_line(error)}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is no configuration")
    return content


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as a person writes them."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{prefix}{'method' if key == 'method_options' else key}"
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{name}.")
        else:
            flat[name] = value
    return flat
