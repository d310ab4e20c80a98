"""Configurations of transformers as data: nothing in them runs code, or fetches any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from twinlens.training.pull.layer_counts import refuse_endless_layers
from twinlens.training.pull.transformers_models import transformers

# Others are kernels, which transformers may fetch from a hub and run.
_ATTENTION: Final = (None, "eager", "sdpa")
_ATTENTION_KEYS: Final = ("attn_implementation", "_attn_implementation")
# Where the files lay when the model was pulled.
_FOLDER: Final = "_name_or_path"


def config_of(described: dict[str, Any]) -> Any:
    """The configuration that `described` holds, with its `model_type`.

    Raises:
        ExportError: if transformers is not installed, or the model would have layers without end.
        ValueError, KeyError, TypeError: if there is no such type, the description is wrong, or asks for code.
    """
    refuse_endless_layers(described, "it")
    for name, value in _entries(described):
        if name == "auto_map":
            raise ValueError("it asks for code of its own (auto_map), which is not run")
        if name in _ATTENTION_KEYS and value not in _ATTENTION:
            raise ValueError(f"{name} must be eager or sdpa, found {value!r}")
    options = dict(described)
    return transformers().AutoConfig.for_model(str(options.pop("model_type", "")), **options)


def as_data(config: Any) -> dict[str, Any]:
    """The description of a transformers configuration, without the folder that it was read from."""
    return _without_folders(config.to_dict())


def _without_folders(described: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_folders(value) if isinstance(value, Mapping) else value
        for name, value in described.items()
        if name != _FOLDER
    }


def _entries(described: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in described.items():
        yield name, value
        if isinstance(value, Mapping):
            yield from _entries(value)
