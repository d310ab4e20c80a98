"""The tokenizers of Hugging Face checkpoints, and of the open_clip models that use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from twinlens.encoders.clean_text import Clean
from twinlens.encoders.manifest import TextSpec
from twinlens.training.export.errors import ExportError
from twinlens.training.tokenizers.configured import apply_config, id_of
from twinlens.training.tokenizers.conversion import convert
from twinlens.training.tokenizers.source import TOKENIZER_FILE, TokenizerSource, find_source, token_text
from twinlens.training.tokenizers.tokenizer_export import TokenizerExport

# Tried in this order where no file says which token pads; the last is that of transformers' CLIP class.
_PAD_SPELLINGS = ("<pad>", "[PAD]", "<|endoftext|>")


def hugging_face_tokenizer(
    source: Path | str,
    *,
    context_length: int,
    clean: Clean,
    pad: Literal["context", "longest"],
    attention_mask: bool,
    strip_sep: bool = False,
) -> TokenizerExport:
    """Reads a checkpoint's tokenizer.

    Args:
        source: A folder, a `tokenizer.json`, `spiece.model` or `vocab.txt` (the latter two are converted), or a name
            on the hub (cached or downloaded).
        context_length: The tower's window, special tokens included.
        clean: What is done to a text before the tokenizer.
        pad: To the whole window, or to the longest text of a batch.
        attention_mask: Whether the graph takes the mask.
        strip_sep: The separator becomes id 0 (open_clip's `strip_sep_token`: CLIPA).

    Raises:
        ExportError: if there is no such tokenizer, it cannot be converted, or it asks for something serving does not do
            (padding or cutting on the left).
    """
    found = find_source(source)
    _refuse_left(found)
    path = found.find(TOKENIZER_FILE)
    if path is None:
        content, found = convert(found)
    else:
        content = _read(path)
    apply_config(content, found)
    if strip_sep:
        _strip_sep(content, found)
    try:
        spec = TextSpec(
            clean=clean,
            context_length=context_length,
            pad_id=_pad_id(content, found, matters=pad == "context" or not attention_mask),
            pad_to_context=pad == "context",
            attention_mask=attention_mask,
        )
    except ValidationError as error:
        raise ExportError(f"the tokenizer of {found.name}: {error.errors()[0]['msg']}") from error
    # Cutting and padding are the manifest's.
    content["truncation"] = content["padding"] = None
    return TokenizerExport(json.dumps(content, ensure_ascii=False, sort_keys=True), spec)


def needs_no_conversion(source: Path | str) -> bool:
    """Whether there is a `tokenizer.json`, which is read without transformers.

    Args:
        source: As for `hugging_face_tokenizer`.

    Raises:
        ExportError: if there is no tokenizer at all.
    """
    return find_source(source).find(TOKENIZER_FILE) is not None


def _read(path: Path) -> dict[str, Any]:
    from tokenizers import Tokenizer  # noqa: PLC0415

    try:
        text = path.read_text(encoding="utf-8")
        # Through the library: checks the file, and brings what older versions wrote into today's form. Not the scores,
        # which it does not read to the last bit.
        content: dict[str, Any] = json.loads(Tokenizer.from_str(text).to_str())
        if content["model"]["type"] == "Unigram":
            content["model"]["vocab"] = json.loads(text)["model"]["vocab"]
    except Exception as error:  # tokenizers raises bare Exception
        raise ExportError(f"{path} is not a tokenizers file: {str(error).splitlines()[0][:200]}") from error
    return content


def _refuse_left(found: TokenizerSource) -> None:
    for side in ("padding_side", "truncation_side"):
        found_side = found.config.get(side, "right")
        if found_side != "right":
            raise ExportError(f"the tokenizer of {found.name} has {side} = {found_side!r}; only right is served")


def _pad_id(content: dict[str, Any], found: TokenizerSource, *, matters: bool) -> int:
    stated = token_text(found.config.get("pad_token"))
    if matters and stated is not None and id_of(content, stated) is None:
        # transformers would give it a new id, which the model has no row for.
        where = TOKENIZER_FILE if found.find(TOKENIZER_FILE) else "its vocabulary"
        raise ExportError(
            f"the tokenizer of {found.name} names {stated!r} as its pad_token, but {where} has no such token; name one "
            "that it has in tokenizer_config.json"
        )
    named = [stated]
    if content.get("padding"):
        named.append(content["padding"]["pad_token"])
    for token in (*named, *_PAD_SPELLINGS):
        number = id_of(content, token)
        if number is not None:
            return number
    if matters:
        raise ExportError(f"the tokenizer of {found.name} names no pad_token; add one to its tokenizer_config.json")
    return 0


def _strip_sep(content: dict[str, Any], found: TokenizerSource) -> None:
    """Puts id 0 in the separator's place: the text is cut at the same word, but another token ends it."""
    named = (token_text(found.config.get("sep_token")), "[SEP]")
    sep = next((number for token in named if (number := id_of(content, token)) is not None), None)
    zero = next((each["content"] for each in content["added_tokens"] if each["id"] == 0), "0")
    if sep is None or not _replace_special(content["post_processor"] or {}, sep, zero):
        raise ExportError(f"the tokenizer of {found.name} ends a text with no separator that could be stripped")


def _replace_special(processor: dict[str, Any], old: int, zero: str) -> bool:
    """Lets a post-processor write id 0 where it wrote `old`; says whether it did."""
    replaced = False
    match processor.get("type"):
        case "Sequence":
            for each in processor["processors"]:
                replaced |= _replace_special(each, old, zero)
        case "TemplateProcessing":
            for each in processor["special_tokens"].values():
                if old in each["ids"]:
                    each["ids"] = [0 if number == old else number for number in each["ids"]]
                    each["tokens"] = [zero] * len(each["ids"])
                    replaced = True
        case "BertProcessing" | "RobertaProcessing" if processor["sep"][1] == old:
            processor["sep"] = [zero, 0]
            replaced = True
    return replaced
