from __future__ import annotations

import pytest

from twinlens.encoders.manifest import TextSpec
from twinlens.encoders.tokenise import TextTokenizer
from twinlens.training.data.errors import DataError
from twinlens.training.data.vocabulary import learn_tokenizer

CAPTIONS = ["A small red circle left of a large blue square.", "a large blue ring above a small red star"] * 3


def tokenizer(json: str, length: int = 16) -> TextTokenizer:
    return TextTokenizer(
        json.encode(), TextSpec(context_length=length, pad_id=0, pad_to_context=True, attention_mask=False)
    )


def test_texts_start_and_end_and_the_end_has_the_highest_id() -> None:
    json, size = learn_tokenizer(CAPTIONS, vocabulary_size=400)
    ids = tokenizer(json)("a red circle").ids
    assert ids[-1] == size - 1 == max(ids)
    assert ids[0] == size - 2
    assert min(ids) >= 1  # 0 pads


def test_words_of_a_small_domain_are_one_token_each() -> None:
    json, _ = learn_tokenizer(CAPTIONS, vocabulary_size=400)
    assert len(tokenizer(json)("a small red circle left of a large blue square").ids) == 10 + 2


def test_letter_case_and_typed_special_tokens_change_nothing() -> None:
    json, size = learn_tokenizer(CAPTIONS, vocabulary_size=400)
    tokenise = tokenizer(json)
    assert tokenise("A RED Circle").ids == tokenise("a red circle").ids
    assert size - 1 not in tokenise("a [END] b").ids[:-1]


def test_no_character_is_unknown() -> None:
    json, _ = learn_tokenizer(CAPTIONS, vocabulary_size=400)
    tokenise = tokenizer(json)
    assert len({tokenise(text).ids for text in ("¤", "日本", "x", "é")}) == 4


def test_long_texts_keep_their_end() -> None:
    json, size = learn_tokenizer(CAPTIONS, vocabulary_size=400)
    cut = tokenizer(json, 6)("a small red circle left of a large blue square")
    assert cut.truncated
    assert len(cut.ids) == 6
    assert cut.ids[-1] == size - 1


def test_the_vocabulary_keeps_its_limit_and_is_reproducible() -> None:
    json, size = learn_tokenizer(CAPTIONS, vocabulary_size=280)
    assert size <= 280
    assert json == learn_tokenizer(CAPTIONS, vocabulary_size=280)[0]


def test_captions_without_words_are_refused() -> None:
    with pytest.raises(DataError, match="no words"):
        learn_tokenizer(["", "  "], vocabulary_size=400)


def test_a_caption_that_is_no_text_is_left_to_whoever_tokenises_it() -> None:
    assert learn_tokenizer([*CAPTIONS, "\ud800"], vocabulary_size=400) == learn_tokenizer(CAPTIONS, vocabulary_size=400)


def test_a_vocabulary_smaller_than_the_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="259"):
        learn_tokenizer(CAPTIONS, vocabulary_size=258)
