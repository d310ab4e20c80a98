"""A repository's folder, local or of the hub: what lies in it says which code base builds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twinlens.training.export.errors import ExportError
from twinlens.training.progress import Say
from twinlens.training.pull import hugging_face_pairs, hugging_face_vision, sentence_transformers
from twinlens.training.pull.model_folder import (
    OPEN_CLIP_WEIGHTS,
    TIMM_WEIGHTS,
    first_of,
    model_folder,
    read_config,
)
from twinlens.training.pull.open_clip_config import CONFIG_NAME, from_file
from twinlens.training.pull.open_clip_models import open_clip_from
from twinlens.training.pull.pulled import PulledTowers
from twinlens.training.pull.source import Choices, Source
from twinlens.training.pull.timm_models import timm_model

_Family = Callable[[Path, dict[str, Any], str, Choices], PulledTowers]
# By transformers' `model_type`; which of them are in each family, the family's own module says.
_BY_MODEL_TYPE: Final[dict[str, _Family]] = {
    **dict.fromkeys(hugging_face_pairs.MODEL_TYPES, hugging_face_pairs.pair),
    **dict.fromkeys(hugging_face_vision.MODEL_TYPES, hugging_face_vision.vision_model),
    **dict.fromkeys(sentence_transformers.MODEL_TYPES, sentence_transformers.plain_text_model),
}
_REFUSED = {
    "siglip2": "its NaFlex towers take pictures of any shape; the fixed-size SigLIP2 checkpoints say siglip",
}


def hub_folder(source: Source, choices: Choices, say: Say) -> PulledTowers:
    """Builds what is in the folder: an open_clip, timm, sentence-transformers or transformers model.

    Raises:
        ExportError: if there is no such folder, or what lies in it is not supported.
    """
    folder = model_folder(source.model)
    name = folder.name if Path(source.model).expanduser().is_dir() else source.model
    if (folder / CONFIG_NAME).is_file():
        weights = first_of(folder, OPEN_CLIP_WEIGHTS)
        inner = Source("open_clip", name, str(weights))
        # The folder's configuration is the choice; a tag of the same name is not.
        choices = _with_config(choices, folder / CONFIG_NAME)
        pulled = open_clip_from(from_file(name, folder / CONFIG_NAME), inner, choices, say)
        return dataclasses.replace(pulled, name=name)
    config = read_config(folder)
    if "pretrained_cfg" in config and "architecture" in config:
        inner = Source("timm", str(config["architecture"]), str(first_of(folder, TIMM_WEIGHTS)))
        return dataclasses.replace(timm_model(inner, choices, say), name=name)
    if choices.config or choices.weights_prefix:
        raise ExportError("the folder brings its configuration and weights: no --config, --weights-prefix")
    if (folder / "modules.json").is_file():
        return sentence_transformers.sentence_model(folder, name, choices)
    model_type = str(config.get("model_type") or "")
    if model_type not in _BY_MODEL_TYPE:
        known = ", ".join(sorted(_BY_MODEL_TYPE))
        reason = _REFUSED.get(model_type, f"known are {known}")
        raise ExportError(f"{name}: model type {model_type!r} is not supported: {reason}")
    return _BY_MODEL_TYPE[model_type](folder, config, name, choices)


def _with_config(choices: Choices, config: Path) -> Choices:
    if choices.config:
        raise ExportError(f"the folder brings its configuration, {CONFIG_NAME}: no --config")
    return Choices(config=config, tokenizer=choices.tokenizer, weights_prefix=choices.weights_prefix)
