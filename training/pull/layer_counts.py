"""How deep a model a configuration may ask for: layers are built one by one, before any weight is compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twinlens.training.export.errors import ExportError

# The deepest published transformers have 1,000 (DeepNet, arXiv:2203.00555).
_MOST_LAYERS = 2000
_NAMES = ("layers", "depth", "depths", "blocks")


def refuse_endless_layers(config: dict[str, Any], origin: object) -> None:
    """Refuses a configuration whose model would take hours and all memory to build.

    Args:
        config: The configuration, with those inside it.
        origin: Where it comes from, for the error.

    Raises:
        ExportError: naming the number.
    """
    for name, value in _numbers(config):
        if name.endswith(_NAMES) and value > _MOST_LAYERS:
            raise ExportError(f"{origin} asks for {value:,} layers ({name}), at most {_MOST_LAYERS:,} can be built")


def _numbers(config: dict[str, Any]) -> Iterator[tuple[str, float]]:
    waiting: list[tuple[str, Any]] = list(config.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(name, each) for each in value]
        elif isinstance(value, int | float):
            yield name, value
