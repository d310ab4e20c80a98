"""What a run folder tells besides the weights."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinlens.training.checkpoint import CheckpointError
from twinlens.training.versions import versions

PACKAGES = ("twinlens", "torch", "open_clip_torch", "timm", "pytorch-lightning", "tokenizers", "numpy", "pillow")


def write_records(out: Path, *, config: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Writes config.json, environment.json and data.json.

    Raises:
        CheckpointError: if the folder cannot be written to.
    """
    environment = {"python": platform.python_version(), "machine": platform.machine(), **versions(PACKAGES)}
    records = {"config.json": config, "environment.json": environment, "data.json": data}
    try:
        for name, record in records.items():
            (out / name).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"cannot write to {out}: {error.strerror or error}") from error
