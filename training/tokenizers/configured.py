"""What transformers changes in a `tokenizer.json` when it loads one: the settings of `tokenizer_config.json` win.

A server that reads `tokenizer.json` alone gets other ids: a cased model lower-cased, a blank too few, another language.
Only of begin and end tokens the file has the last word.
"""

from __future__ import annotations

from typing import Any

from twinlens.training.export.errors import ExportError
from twinlens.training.tokenizers.source import TokenizerSource, token_text

# Classes whose constructor sets the normalizer of BERT, with these defaults.
_BERT_LIKE = {"Bert", "DistilBert", "Electra", "MPNet", "MobileBert", "SqueezeBert", "LayoutLM", "Lxmert", "Funnel"}
_BYTE_LEVEL = {"Roberta", "GPT2", "Bart", "Longformer", "Blenderbot", "LED", "Deberta"}


def apply_config(content: dict[str, Any], found: TokenizerSource) -> None:
    """Changes the contents of a `tokenizer.json` as the class named in `tokenizer_config.json` would.

    Raises:
        ExportError: if the configuration names tokens that the file lacks.
    """
    family = tokenizer_class(found).removesuffix("Fast").removesuffix("Tokenizer")
    _added_tokens(content, found)
    if family in _BERT_LIKE and (content["normalizer"] or {}).get("type") == "BertNormalizer":
        content["normalizer"] |= {
            "lowercase": found.config.get("do_lower_case", True),
            "strip_accents": found.config.get("strip_accents"),
            "handle_chinese_chars": found.config.get("tokenize_chinese_chars", True),
        }
    if family in _BYTE_LEVEL:
        _prefix_space(content["pre_tokenizer"], wanted=bool(found.config.get("add_prefix_space", False)))
    if family == "Nllb":
        _language(content, found)
    if family == "Siglip2":
        lower_first(content)
    if found.find("modules.json"):
        _as_sentence_transformers(content, found)


def tokenizer_class(found: TokenizerSource) -> str:
    """The class that AutoTokenizer would take, or an empty string where no file says."""
    if found.model_type == "siglip2":
        # The published checkpoints name Gemma's class, which does not lower-case; the model was trained lower-cased.
        return "Siglip2Tokenizer"
    return str(found.config.get("tokenizer_class") or "")


def lower_cases(content: dict[str, Any]) -> bool:
    """Whether the normalizer lower-cases."""
    return "'Lowercase'" in str(content["normalizer"])


def lower_first(content: dict[str, Any]) -> None:
    """Puts lower-casing before the normalizer, unless it is there."""
    if not lower_cases(content):
        _normalize_first(content, {"type": "Lowercase"})


def id_of(content: dict[str, Any], token: str | None) -> int | None:
    """The id of a token, or None where the tokenizer has none of that spelling."""
    if token is None:
        return None
    for added in content["added_tokens"]:
        if added["content"] == token:
            return int(added["id"])
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, dict):
        return vocabulary.get(token)
    return next((i for i, (piece, _) in enumerate(vocabulary) if piece == token), None)


def _added_tokens(content: dict[str, Any], found: TokenizerSource) -> None:
    configured = found.config.get("added_tokens_decoder")
    if not isinstance(configured, dict):
        return
    known = {added["content"]: added for added in content["added_tokens"]}
    for token in configured.values():
        spelling = token_text(token) or ""
        if spelling in known:
            flags = ("special", "normalized", "lstrip", "rstrip", "single_word")
            known[spelling].update({flag: token[flag] for flag in flags if flag in token})
        elif not token.get("special", False):
            raise ExportError(
                f"{found.name}: tokenizer_config.json adds the token {spelling!r}, which tokenizer.json lacks;"
                " save both again with transformers' save_pretrained"
            )


def _prefix_space(pre_tokenizer: dict[str, Any] | None, *, wanted: bool) -> None:
    if pre_tokenizer is None:
        return
    if pre_tokenizer["type"] == "ByteLevel":
        pre_tokenizer["add_prefix_space"] = wanted
    for each in pre_tokenizer.get("pretokenizers", ()):
        _prefix_space(each, wanted=wanted)


def _language(content: dict[str, Any], found: TokenizerSource) -> None:
    """NLLB marks the language: English where nothing else is configured, as open_clip and transformers do."""
    language = str(found.config.get("src_lang") or "eng_Latn")
    if id_of(content, language) is None:
        raise ExportError(f"the tokenizer of {found.name} lacks the token of its language, {language!r}")
    end = _special(content, found, "eos_token", "</s>")
    if found.config.get("legacy_behaviour"):
        content["post_processor"] = _template(content, before=None, after=(end, language))
    else:
        content["post_processor"] = _template(content, before=language, after=(end,))


def _special(content: dict[str, Any], found: TokenizerSource, role: str, default: str) -> str:
    token = token_text(found.config.get(role)) or default
    if id_of(content, token) is None:
        raise ExportError(f"the tokenizer of {found.name} names {token!r} as its {role}, but has no such token")
    return token


def _template(content: dict[str, Any], before: str | None, after: tuple[str | None, ...]) -> dict[str, Any]:
    ends = [token for token in after if token is not None]
    single = [
        *([] if before is None else [_piece("SpecialToken", before)]),
        _piece("Sequence", "A"),
        *(_piece("SpecialToken", token) for token in ends),
    ]
    tokens = [*ends] if before is None else [before, *ends]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, _piece("Sequence", "B")],
        "special_tokens": {
            token: {"id": token, "ids": [id_of(content, token)], "tokens": [token]} for token in dict.fromkeys(tokens)
        },
    }


def _piece(kind: str, name: str) -> dict[str, Any]:
    return {kind: {"id": name, "type_id": 0}}


def _as_sentence_transformers(content: dict[str, Any], found: TokenizerSource) -> None:
    """That library strips every text, and lower-cases it where its own configuration says so."""
    # Python's white space, of which the library's own `Strip` leaves the four separators of files and records.
    blank = r"[\s\x{1c}-\x{1f}]+"
    _normalize_first(content, {"type": "Replace", "pattern": {"Regex": rf"\A{blank}|{blank}\z"}, "content": ""})
    if found.sentence_transformers.get("do_lower_case"):
        lower_first(content)


def _normalize_first(content: dict[str, Any], normalizer: dict[str, Any]) -> None:
    rest = content["normalizer"]
    if rest is None:
        content["normalizer"] = normalizer
    elif rest["type"] == "Sequence":
        rest["normalizers"].insert(0, normalizer)
    else:
        content["normalizer"] = {"type": "Sequence", "normalizers": [normalizer, rest]}
