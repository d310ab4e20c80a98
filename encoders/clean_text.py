"""The clean-up that a checkpoint's own tokenizer does before it cuts text into tokens.

Same results as open_clip's `tokenizer.py` (`clean='lower'`, `'whitespace'`, `'canonicalize'`), which took them from
OpenAI's CLIP and Google's big_vision.
"""

from __future__ import annotations

import html
import string
from typing import Literal, assert_never

Clean = Literal["none", "clip_lower", "clip_whitespace", "canonicalize"]

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def clean_text(text: str, clean: Clean) -> str:
    """Applies the clean-up named in the manifest; `none` returns the text as it is."""
    match clean:
        case "none":
            return text
        case "clip_lower":
            return _fold_whitespace(_fix(text)).lower()
        case "clip_whitespace":
            return _fold_whitespace(_fix(text))
        case "canonicalize":
            spaced = _fix(text).replace("_", " ")
            return _fold_whitespace(spaced.translate(_NO_PUNCTUATION).lower())
    assert_never(clean)


def _fix(text: str) -> str:
    import ftfy  # noqa: PLC0415 - 60 ms and only needed for some checkpoints

    # Unescaped twice as CLIP does: its captions held `&amp;amp;`.
    return html.unescape(html.unescape(ftfy.fix_text(text))).strip()


def _fold_whitespace(text: str) -> str:
    return " ".join(text.split())
