"""From a string to the ids a text tower takes, identical to the checkpoint's reference tokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.clean_text import clean_text
from twinlens.encoders.errors import BundleError, InvalidText, first_line
from twinlens.encoders.manifest import TextSpec
from twinlens.encoders.text_window import raw_end, word_end

if TYPE_CHECKING:
    from tokenizers.models import Unigram

# What lies beyond is not read: words without end, and what a clean-up removes, take microseconds a character.
_LONGEST = 2_000_000
# What is read of a text at first, in characters; more only if this does not fill the context.
_WINDOW = 4096
_CHARACTERS_A_TOKEN = 16
_GROWTH = 4
# Tokens beyond the context that a part of a text must give: those at its very end may differ from the whole text's.
_SPARE = 64


@dataclass(frozen=True, slots=True)
class TokenisedText:
    """The ids of one text, special tokens included, without padding; `truncated` says that some were cut off."""

    ids: tuple[int, ...]
    truncated: bool


class TextTokenizer:
    """A Hugging Face `tokenizers` file plus the clean-up, length limit and refusals of the manifest.

    Special tokens come from the file's own post-processor. Their spellings typed by a user (`<|endoftext|>`, `[SEP]`)
    are plain text, so nobody ends a sequence early. Thread-safe.
    """

    def __init__(self, tokenizer_json: bytes | Path, spec: TextSpec) -> None:
        """Reads the tokenizer.

        Raises:
            BundleError: if the file is missing or is not a tokenizers file.
        """
        from tokenizers import Tokenizer, models  # noqa: PLC0415 - kept out of programs that only decode pictures

        try:
            raw = tokenizer_json if isinstance(tokenizer_json, bytes) else tokenizer_json.read_bytes()
            self._tokenizer = Tokenizer.from_str(raw.decode("utf-8"))
            # How the best split of a unigram model is found needs the whole word, and the last bit of each score.
            self._whole_words = isinstance(self._tokenizer.model, models.Unigram)
            if self._whole_words:
                self._tokenizer.model = _exact_unigram(json.loads(raw))
        except Exception as error:  # tokenizers raises bare Exception
            msg = f"the tokenizer cannot be read: {first_line(error)}"
            raise BundleError(msg) from error
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_padding()
        # Cut here, not there: the file's own limit may differ from the tower's, and the caller is told of the cut.
        self._tokenizer.no_truncation()
        self._spec = spec

    def __call__(self, text: str) -> TokenisedText:
        """Cleans, tokenises and cuts one text.

        Over-long text loses its last words; the special tokens at the end (CLIP pools there) are kept. Of a text far
        longer than the context only the beginning is read; the ids are those of its first two million characters.

        Raises:
            InvalidText: if the text is empty (before or after the clean-up), or holds NUL or a lone surrogate.
        """
        check_characters(text)
        readable = text[:_LONGEST]
        context = self._spec.context_length
        window = max(_WINDOW, _CHARACTERS_A_TOKEN * context)
        while True:
            raw = readable[: raw_end(readable, window)]
            cleaned = clean_text(raw, self._spec.clean)
            start = cleaned[: word_end(cleaned, window, whole_words=self._whole_words)]
            encoding = self._tokenizer.encode(start)
            ids: list[int] = encoding.ids
            whole = len(raw) == len(readable) and len(start) == len(cleaned)
            if whole or len(ids) > context + _SPARE:
                break
            window *= _GROWTH
        if not cleaned.strip():
            raise InvalidText("the text is empty" if not text.strip() else "nothing is left of the text after clean-up")
        if len(ids) <= context:
            return TokenisedText(tuple(ids), truncated=len(readable) < len(text))
        tail = min(_trailing_special(encoding.special_tokens_mask), context)
        return TokenisedText(tuple(ids[: context - tail] + ids[len(ids) - tail :]), truncated=True)


def collate(tokens: Sequence[TokenisedText], spec: TextSpec) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pads a batch to one length: `context_length` if the spec says so, otherwise the longest of the batch.

    Returns:
        `input_ids` and `attention_mask` (1 for a token, 0 for padding), both of shape (n, length).
    """
    longest = max((len(text.ids) for text in tokens), default=0)
    length = spec.context_length if spec.pad_to_context else longest
    input_ids = np.full((len(tokens), length), spec.pad_id, dtype=np.int64)
    attention_mask = np.zeros((len(tokens), length), dtype=np.int64)
    for row, text in enumerate(tokens):
        input_ids[row, : len(text.ids)] = text.ids
        attention_mask[row, : len(text.ids)] = 1
    return input_ids, attention_mask


def _exact_unigram(content: dict[str, Any]) -> Unigram:
    """The model with its scores as they are written, and without special tokens among its pieces.

    The library's own reader rounds some decimals to the neighbour of the nearest number. Where two ways to cut a word
    have the same score, as in `11111`, that decides between them. And it lets the spelling of a special token in a text
    be that token, with a better score than any word has; sentencepiece does not.
    """
    from tokenizers import models  # noqa: PLC0415

    model = content["model"]
    special = {token["content"] for token in content.get("added_tokens") or () if token["special"]}
    if model["unk_id"] is not None:
        special.add(model["vocab"][model["unk_id"]][0])
    # No text holds NUL, so such a piece matches nothing.
    vocabulary = [(f"\0{piece}" if piece in special else piece, float(score)) for piece, score in model["vocab"]]
    return models.Unigram(vocabulary, model["unk_id"], model.get("byte_fallback", False))


def check_characters(text: str) -> None:
    """Refuses a text that no tokenizer takes, whichever it is.

    Raises:
        InvalidText: if it holds NUL or a lone surrogate.
    """
    if "\0" in text:
        raise InvalidText("the text contains a NUL character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        msg = f"the text contains a lone surrogate (half a character) at position {error.start}"
        raise InvalidText(msg) from None


def _trailing_special(mask: Sequence[int]) -> int:
    count = 0
    for special in reversed(mask):
        if not special:
            break
        count += 1
    return count
