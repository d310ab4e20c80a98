"""Keeps a tokenizer's model from reading the spelling of a special token as that token."""

from __future__ import annotations

import json
import re
from typing import Any

from twinlens.training.tokenizers.configured import id_of


def keep_specials_plain(content: dict[str, Any]) -> None:
    """Makes every spelling of a special token plain text to the model as well.

    Serving does not look for special tokens in a text. That is not enough where the model's own vocabulary holds them
    as ordinary pieces: converted unigram models give `</s>` a score better than that of any word. Such a spelling is
    split after its first character, before the model sees it.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415

    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    leaking = [
        token
        for token in _specials(content)
        if len(token) > 1
        and any(
            id_of(content, token) in tokenizer.encode(text, add_special_tokens=False).ids
            for text in (token, f"a{token}b", f"a {token} b")
        )
    ]
    if not leaking:
        return
    rests: dict[str, list[str]] = {}
    for token in leaking:
        rests.setdefault(token[0], []).append(_escaped(token[1:]))
    pattern = "|".join(f"{_escaped(first)}(?={'|'.join(rest)})" for first, rest in sorted(rests.items()))
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "MergedWithPrevious", "invert": False}
    before = content["pre_tokenizer"]
    steps = [] if before is None else before["pretokenizers"] if before["type"] == "Sequence" else [before]
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*steps, split]}


def _specials(content: dict[str, Any]) -> list[str]:
    found = [added["content"] for added in content["added_tokens"] if added["special"]]
    unknown = content["model"].get("unk_token")
    if unknown is None and content["model"].get("unk_id") is not None:
        unknown = content["model"]["vocab"][content["model"]["unk_id"]][0]
    return list(dict.fromkeys([*found, *([] if unknown is None else [unknown])]))


def _escaped(text: str) -> str:
    return re.escape(text)
