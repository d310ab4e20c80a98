"""What is wrong with a source that can be told before torch and the libraries of models are loaded, which takes long.

What builds the model looks again: this only answers sooner.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from twinlens.training.export.errors import ExportError
from twinlens.training.pull.model_folder import OPEN_CLIP_WEIGHTS, TIMM_WEIGHTS, first_of, model_folder, read_config
from twinlens.training.pull.open_clip_config import CONFIG_NAME, OpenClipConfig, built_in, check_pictures, from_file
from twinlens.training.pull.published_weights import open_clip_tag, published_weights
from twinlens.training.pull.source import Choices, Source, weights_file
from twinlens.training.pull.timm_listing import check_name, refuse_text_choices
from twinlens.training.pull.tokenizer_choice import check_open_clip_tokenizer
from twinlens.training.tokenizers import hugging_face_tokenizer, needs_no_conversion

# transformers' models whose text tower sees the padding: it has to be the right one.
_PADDED: Final = ("clip", "siglip")


def check_before_loading(source: Source, choices: Choices) -> None:
    """Looks for files, names, tags, tokenizers and the network; what is published is downloaded.

    Raises:
        ExportError: saying what is missing or wrong.
    """
    match source.family:
        case "open_clip":
            _open_clip(source, choices)
        case "timm":
            refuse_text_choices(choices)
            weights_file(source.weights)
            check_name(source.model.partition(".")[0])
        case "hf":
            _folder(model_folder(source.model), choices)


def _open_clip(source: Source, choices: Choices) -> None:
    tag_cfg: dict[str, Any] = {}
    if choices.config:
        config = from_file(source.model, choices.config)
        if source.weights is not None and weights_file(source.weights) is None:
            raise ExportError(f"no checkpoint at {source.weights}")
    else:
        config = built_in(source.model)
        tag_cfg = open_clip_tag(source)
    _open_clip_towers(config, choices.tokenizer)
    if tag_cfg:
        published_weights(source.model, str(source.weights), tag_cfg)


def _open_clip_towers(config: OpenClipConfig, tokenizer: str | None) -> None:
    check_pictures(config)
    check_open_clip_tokenizer(config, tokenizer)


def _folder(folder: Path, choices: Choices) -> None:
    if (folder / CONFIG_NAME).is_file():
        first_of(folder, OPEN_CLIP_WEIGHTS)
        _open_clip_towers(from_file(folder.name, folder / CONFIG_NAME), choices.tokenizer)
        return
    config = read_config(folder)
    if "pretrained_cfg" in config and "architecture" in config:
        first_of(folder, TIMM_WEIGHTS)
        check_name(str(config["architecture"]))
    elif config.get("model_type") in _PADDED:
        tokenizer = choices.tokenizer or folder
        if needs_no_conversion(tokenizer):
            hugging_face_tokenizer(tokenizer, context_length=77, clean="none", pad="longest", attention_mask=False)
