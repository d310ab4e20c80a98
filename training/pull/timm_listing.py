"""Which models timm has, read from its source: to import it brings torch and torchvision, many seconds."""

from __future__ import annotations

import functools
import re
import sys
from importlib import util
from pathlib import Path
from typing import Any, Final

from twinlens.training.export.errors import ExportError
from twinlens.training.pull.near_names import perhaps
from twinlens.training.pull.source import Choices

_LIBRARY: Final = "timm"
_MODEL = re.compile(r"@register_model\s+def (\w+)\(")
_INSTALL_HINT = "pip install 'twinlens[train]'"


def check_name(name: str) -> None:
    """Refuses a name that timm does not have.

    Raises:
        ExportError: naming those that are near.
    """
    if _LIBRARY in sys.modules:
        library: Any = sys.modules[_LIBRARY]
        known = library.is_model(name)
    else:
        source = _source()
        # Names of old, which timm still understands, are in tables.
        known = name in _MODEL.findall(source) or f"'{name}':" in source or f'"{name}":' in source
    if not known:
        raise ExportError(f"timm knows no model {name!r}" + perhaps(name, _names()))


def refuse_text_choices(choices: Choices) -> None:
    """Refuses options that mean nothing without a text tower.

    Raises:
        ExportError: if there are any.
    """
    if choices.config or choices.tokenizer:
        raise ExportError("timm models have no text tower: --config and --tokenizer mean nothing here")


def _names() -> list[str]:
    library: Any = sys.modules.get(_LIBRARY)
    return list(library.list_models()) if library is not None else _MODEL.findall(_source())


@functools.cache
def _source() -> str:
    spec = util.find_spec(_LIBRARY)
    if spec is None or spec.origin is None:
        raise ExportError(f"models of timm need timm: {_INSTALL_HINT}")
    files = sorted(Path(spec.origin).parent.glob("models/**/*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)
