"""What transformers does to a text before SigLIP's tokenizer, as a normaliser inside the tokenizer's own file.

Its `SiglipTokenizer` lower-cases, drops punctuation and folds white space; its `Siglip2Tokenizer` lower-cases. That is
close to open_clip's `canonicalize` but not the same: no repair of broken Unicode, no HTML entities, and an underscore
is dropped where open_clip makes it a space. A folder of transformers keeps transformers' way.
"""

from __future__ import annotations

import dataclasses
import json
import re
import string
from pathlib import Path
from typing import Any

from twinlens.training.json_object import read_json_object
from twinlens.training.tokenizers import TokenizerExport
from twinlens.training.tokenizers.configured import lower_cases, lower_first

_LOWER: dict[str, Any] = {"type": "Lowercase"}
# Python lower-cases a sigma at the end of a word to another letter; the normaliser sees one letter at a time.
_CASED = r"\p{Lu}\p{Ll}\p{Lt}"
_BETWEEN = r"\p{M}\p{Cf}\p{Lm}\p{Sk}'.:\u00b7"  # what Unicode's rule for it looks past
_FINAL_SIGMA: dict[str, Any] = {
    "type": "Replace",
    "pattern": {"Regex": f"(?<=[{_CASED}])\u03a3(?![{_BETWEEN}]*[{_CASED}])"},
    "content": "\u03c2",
}
_PUNCTUATION: dict[str, Any] = {
    "type": "Replace",
    "pattern": {"Regex": f"[{re.escape(string.punctuation)}]"},
    "content": "",
}
# Python counts four more characters as white space than the normaliser's expressions do.
_FOLD: dict[str, Any] = {"type": "Replace", "pattern": {"Regex": r"[\s\x1c-\x1f]+"}, "content": " "}
_STRIP: dict[str, Any] = {"type": "Strip", "strip_left": True, "strip_right": True}
# Sentencepiece composes letters from any number of parts. The library's copy of its rules looks at a few bytes only:
# it leaves Korean and accents over accents apart before them, and half-width kana apart after them.
_COMPOSE: dict[str, Any] = {"type": "NFC"}
_LOWER_ONLY = ("Siglip2Tokenizer", "GemmaTokenizer", "GemmaTokenizerFast")


def with_siglip_clean_up(export: TokenizerExport, source: Path | str) -> TokenizerExport:
    """Puts the clean-up before the tokenizer's own normaliser; a file that lower-cases already is left as it is.

    Args:
        export: The tokenizer, whose spec cleans nothing.
        source: Its folder; `tokenizer_config.json` names the class.
    """
    named = str(read_json_object(Path(source).expanduser() / "tokenizer_config.json").get("tokenizer_class") or "")
    content = json.loads(export.json)
    if named in _LOWER_ONLY:
        lower_first(content)
    elif not lower_cases(content):
        own = content["normalizer"]
        steps = [_FINAL_SIGMA, _LOWER, _PUNCTUATION, _FOLD, _STRIP, _COMPOSE]
        content["normalizer"] = {"type": "Sequence", "normalizers": steps if own is None else [*steps, own, _COMPOSE]}
    return dataclasses.replace(export, json=json.dumps(content, ensure_ascii=False, sort_keys=True))
