"""Whether two towers fit each other and what they are fed with: found out before any step is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.training.errors import ConfigError, first_line
from twinlens.training.modules.evaluation_mode import evaluation_mode


def check_fit(model: nn.Module, preprocess: PreprocessSpec, text: TextSpec) -> None:
    """Feeds both towers with two blanks; the model is left as it was, running statistics included.

    Args:
        model: See `build_towers`.
        preprocess: What its pictures are like.
        text: What its rows of ids are like.

    Raises:
        ConfigError: if a tower does not take what it is fed with, or their vectors differ in length.
    """
    towers: Any = model
    pixels, ids = blanks(preprocess, text)
    with evaluation_mode(model):
        size = f"{preprocess.size}x{preprocess.size}"
        image = _dimension(towers.encode_image, pixels, f"the image tower does not take pictures of {size}")
        of_text = _dimension(towers.encode_text, ids, f"the text tower does not take {text.context_length} tokens")
    if image != of_text:
        raise ConfigError(f"the image tower gives vectors of {image} numbers, the text tower of {of_text}")


def blanks(preprocess: PreprocessSpec, text: TextSpec) -> tuple[Tensor, Tensor]:
    """Two pictures, and two rows of ids, of the form that the towers are fed with."""
    pixels = torch.zeros(2, 3, preprocess.size, preprocess.size)
    # Padding would be left out, and its id may be the last of the vocabulary.
    return pixels, torch.full((2, text.context_length), text.pad_id - 1 if text.pad_id else 1)


def _dimension(encode: Callable[[Tensor], Any], inputs: Tensor, otherwise: str) -> int:
    try:
        with torch.no_grad():
            embeddings = encode(inputs)
    except Exception as error:  # of a library, built with arguments of any kind
        raise ConfigError(f"model: {otherwise}: {first_line(error)}") from error
    if not isinstance(embeddings, Tensor) or embeddings.ndim != 2:
        raise ConfigError(f"model: {otherwise.partition(' does')[0]} gives no embeddings, one row each")
    return int(embeddings.shape[1])
