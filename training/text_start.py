"""The text tower that a run from scratch starts with: a vocabulary learned from its captions, or a trained encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from torch import nn

from twinlens.encoders.manifest import TextSpec
from twinlens.training.data.vocabulary import learn_tokenizer
from twinlens.training.errors import ConfigError
from twinlens.training.text_checkpoint import TextEncoderSpec

_PAD_ID = 0
_CONTEXT = 77


@dataclass(frozen=True)
class TextStart:
    """Everything about the text side that a dual encoder is built from.

    Attributes:
        text_cfg: The tower.
        text: From a string to its input.
        tokenizer_json: The text of the Hugging Face `tokenizers` file.
    """

    text_cfg: dict[str, Any]
    text: TextSpec
    tokenizer_json: str


def learned_text(text_cfg: Mapping[str, Any], captions: Sequence[str], *, vocabulary_size: int) -> TextStart:
    """Learns the vocabulary from the captions and fits the tower to its size.

    Args:
        text_cfg: open_clip's, or with `transformers` (see `TransformersTextConfig`).
        captions: Of the data.
        vocabulary_size: At most.

    Raises:
        ConfigError: if the context has no usable length, or `transformers` is no table with a `config`.
        DataError: if the captions hold no words.
    """
    tokenizer_json, size = learn_tokenizer(captions, vocabulary_size=vocabulary_size)
    masked = "transformers" in text_cfg
    context = text_cfg.get("context_length", _CONTEXT)
    try:
        text = TextSpec(context_length=context, pad_id=_PAD_ID, pad_to_context=not masked, attention_mask=masked)
    except ValidationError as error:
        raise ConfigError(f"model.config.text_cfg.context_length: {error.errors()[0]['msg']}") from error
    if masked:
        return TextStart({"transformers": _with_vocabulary(text_cfg["transformers"], size)}, text, tokenizer_json)
    fitted = {"context_length": _CONTEXT, **text_cfg, "vocab_size": size}
    if fitted.get("pool_type") == "eos":
        fitted["eos_id"] = size - 1
    return TextStart(fitted, text, tokenizer_json)


def trained_text(spec: TextEncoderSpec) -> TextStart:
    """A trained encoder with its tokenizer, and a projection on top."""
    described = {**spec.text_cfg["transformers"], "projection": True}
    return TextStart({"transformers": described}, spec.text, spec.tokenizer_json)


def take_weights(text_tower: nn.Module, trained: nn.Module) -> None:
    """Copies a trained encoder into the tower that `trained_text` describes; the projection stays as it is."""
    text_tower.load_state_dict({**text_tower.state_dict(), **trained.state_dict()})


def _with_vocabulary(described: Any, size: int) -> dict[str, Any]:
    if not isinstance(described, dict) or not isinstance(described.get("config"), dict):
        raise ConfigError("model.config.text_cfg.transformers must be a table with a table config")
    # Ids that transformers gives a meaning and that are not in the vocabulary would be looked up outside of it.
    config = {**described["config"], "vocab_size": size, "pad_token_id": _PAD_ID}
    return {**described, "config": config}
