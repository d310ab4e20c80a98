"""The tokenizer of a text tower, checked against the tower: ids it has no row for end the server's call, not ours."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twinlens.encoders.tokenise import TextTokenizer
from twinlens.training.export.errors import ExportError
from twinlens.training.pull.open_clip_config import OpenClipConfig, TokenizerNeed, tokenizer_need
from twinlens.training.tokenizers import (
    TokenizerExport,
    clip_tokenizer,
    coca_tokenizer,
    hugging_face_tokenizer,
    needs_no_conversion,
)

_PROBE = "a photo of two dogs"


def open_clip_tokenizer(config: OpenClipConfig, given: str | None) -> TokenizerExport:
    """The tokenizer of an open_clip model.

    Args:
        config: The model.
        given: The user's choice, instead of what the model names.

    Raises:
        ExportError: if there is none, or it does not fit the tower.
    """
    need = tokenizer_need(config, given=given is not None)
    source = given or _source(config, need)
    if source:
        with _named(config, given):
            export = hugging_face_tokenizer(
                source,
                context_length=config.context_length,
                clean=need.clean,
                pad="context",
                attention_mask=False,
                strip_sep=need.strip_sep,
            )
    elif config.is_coca:
        export = coca_tokenizer(config.context_length)
    else:
        export = clip_tokenizer(config.context_length, need.clean)
    vocabulary = config.text_cfg.get("vocab_size")
    # Models with a transformers text tower state the vocabulary in another file; there it is checked when built.
    if vocabulary is not None:
        check_vocabulary(export, int(vocabulary), config.name)
        _check_end(export, config)
    return export


def check_open_clip_tokenizer(config: OpenClipConfig, given: str | None) -> None:
    """As `open_clip_tokenizer`; but where a vocabulary has to be converted, only whether there is one.

    Raises:
        ExportError: as `open_clip_tokenizer`.
    """
    source = given or _source(config, tokenizer_need(config, given=given is not None))
    with _named(config, given):
        ready = not source or needs_no_conversion(source)
    if ready:
        open_clip_tokenizer(config, given)


@contextlib.contextmanager
def _named(config: OpenClipConfig, given: str | None) -> Iterator[None]:
    try:
        yield
    except ExportError as error:
        hint = "" if given else ", by --tokenizer FOLDER"
        raise ExportError(f"{config.name}: {error}{hint}") from error


def check_vocabulary(export: TokenizerExport, vocabulary: int, name: str) -> None:
    """Refuses a tokenizer that has ids the tower has no row for.

    Raises:
        ExportError: naming both sizes.
    """
    highest = highest_id(export.json)
    if highest >= vocabulary:
        raise ExportError(
            f"the tokenizer has ids up to {highest:,}, but {name} has {vocabulary:,} rows: it belongs to another model"
        )


def highest_id(tokenizer_json: str) -> int:
    """The highest id a tokenizer may give."""
    content: dict[str, Any] = json.loads(tokenizer_json)
    vocabulary = content["model"].get("vocab", {})
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else [len(vocabulary) - 1]
    ids += [added["id"] for added in content.get("added_tokens") or []]
    return max(ids, default=0)


def _source(config: OpenClipConfig, need: TokenizerNeed) -> str:
    """A repository's own folder if it holds the tokenizer, or what the configuration names."""
    if not need.hub_name:
        return ""
    if config.folder is not None and any(
        (config.folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "spiece.model")
    ):
        return str(config.folder)
    if Path(need.hub_name).expanduser().is_dir():
        return str(Path(need.hub_name).expanduser())
    return need.hub_name


def _check_end(export: TokenizerExport, config: OpenClipConfig) -> None:
    """Where the tower pools at an end token, texts have to end in it."""
    text_cfg = config.text_cfg
    pool_type = text_cfg.get("pool_type") or "argmax"
    if text_cfg.get("embed_cls") or text_cfg.get("hf_model_name") or pool_type not in {"argmax", "eos"}:
        return
    ids = TextTokenizer(export.json.encode(), export.spec)(_PROBE).ids
    wanted = text_cfg.get("eos_id", 2) if pool_type == "eos" else max(ids)
    if ids.index(wanted) != len(ids) - 1 if wanted in ids else True:
        raise ExportError(
            f"{config.name} pools at an end token, but this tokenizer ends texts with id {ids[-1]}"
            + (f", not {wanted}" if pool_type == "eos" else "")
        )
