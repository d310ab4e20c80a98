from __future__ import annotations

import json
import unicodedata

import pytest
from open_clip import SimpleTokenizer
from tokenizers import Tokenizer

from twinlens.encoders.clean_text import Clean
from twinlens.encoders.tokenise import TextTokenizer
from twinlens.training.tokenizers import CLIP_VOCABULARY_SIZE, TokenizerExport, clip_tokenizer, coca_tokenizer
from twinlens.training.tokenizers.clip import tokenizer_json


@pytest.fixture(scope="module")
def reference() -> SimpleTokenizer:
    return SimpleTokenizer()


def load(export: TokenizerExport) -> TextTokenizer:
    return TextTokenizer(export.json.encode(), export.spec)


def test_every_assigned_character_falls_into_words_as_in_open_clip(reference: SimpleTokenizer) -> None:
    ours = Tokenizer.from_str(clip_tokenizer().json).pre_tokenizer[0]
    wrong = []
    for number in range(1, 0x110000):
        character = chr(number)
        # Of unassigned ones (Cn) it depends on the Unicode version of the regex engine.
        if unicodedata.category(character) in {"Cn", "Co", "Cs"}:
            continue
        text = f"{character} a{character}b !{character}! 1{character}2 '{character} 'l{character}"
        if [word for word, _ in ours.pre_tokenize_str(text)] != reference.pat.findall(text):
            wrong.append(hex(number))
    assert wrong == []


@pytest.mark.parametrize("typed", ["<end_of_text>", "<start_of_text>", "<END_of_text>"])
def test_special_token_spellings_are_plain_text(reference: SimpleTokenizer, typed: str) -> None:
    start, end = reference.all_special_ids
    ids = load(clip_tokenizer())(f"a dog {typed} and a cat").ids
    assert (ids[0], ids[-1]) == (start, end)
    assert not {start, end} & set(ids[1:-1])


def test_open_clip_lets_the_spelling_of_its_end_token_cut_a_query(reference: SimpleTokenizer) -> None:
    _, end = reference.all_special_ids
    cut = reference("a dog <end_of_text> and a cat")[0].tolist()
    # It pools at the first end token: the cat is lost.
    assert cut.index(end) == 3
    ours = load(clip_tokenizer())("a dog <end_of_text> and a cat").ids
    assert ours.index(end) == len(ours) - 1 > 3


@pytest.mark.parametrize("context", [2, 3, 16, 76, 77])
def test_over_long_text_keeps_the_end_token_and_says_so(reference: SimpleTokenizer, context: int) -> None:
    tokenizer = load(clip_tokenizer(context))
    for words in (context - 2, context - 1, 200):
        text = "dog " * words
        if not words:
            continue
        found = tokenizer(text)
        wanted = reference(text, context_length=context)[0].tolist()
        assert list(found.ids) == wanted[: len(found.ids)]
        assert not any(wanted[len(found.ids) :])
        assert found.truncated == (words > context - 2)


@pytest.mark.parametrize("clean", ["clip_lower", "clip_whitespace", "canonicalize"])
def test_the_clean_up_is_the_manifests(clean: Clean) -> None:
    assert clip_tokenizer(32, clean).spec.clean == clean
    assert clip_tokenizer(32, clean).json == clip_tokenizer().json


def test_cocas_window_leaves_room_for_the_token_its_tower_appends() -> None:
    assert coca_tokenizer().spec.context_length == 76
    assert coca_tokenizer().json == clip_tokenizer().json


def test_the_file_is_the_same_every_time() -> None:
    first = tokenizer_json()
    tokenizer_json.cache_clear()
    assert tokenizer_json() == first
    assert len(json.loads(first)["model"]["vocab"]) == CLIP_VOCABULARY_SIZE
