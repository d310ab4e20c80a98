"""The optional JSON files beside a model's weights and tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twinlens.training.errors import first_line
from twinlens.training.export.errors import ExportError


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a file; empty where there is no such file, or something else in it.

    Raises:
        ExportError: if it is not JSON.
    """
    if not path.is_file():
        return {}
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExportError(f"{path} is not JSON: {first_line(error)}") from error
    return loaded if isinstance(loaded, dict) else {}
