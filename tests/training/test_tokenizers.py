from __future__ import annotations

import json
import random
import unicodedata

import pytest
from open_clip import SimpleTokenizer

from twinlens.encoders.errors import InvalidText
from twinlens.encoders.tokenise import TextTokenizer
from twinlens.training.tokenizers import CLIP_VOCABULARY_SIZE, clip_text_spec, open_clip_tokenizer_json

WORDS = [
    "dog",
    "photo",
    "of",
    "the",
    "two",
    "don't",
    "I'LL",
    "we're",
    "x'Re",
    "'s",
    "'S",
    "123abc",
    "a.b.c",
    "CAFÉ",
    "naïve",
    "é",
    "ﬁne",
    "Ã©",
    "&amp;",
    "&amp;amp;",
    "&lt;b&gt;",
    "Straße",
    "İstanbul",
    "猫",
    "写真",
    "한국어",
    "русский",
    "العربية",
    "हिन्दी",
    "🐱",
    "👨\u200d👩\u200d👧",
    "🇺🇸",
    "½",
    "²",
    "Ⅷ",
    "...",
    "!?",
    "--",
    "#tag",
    "@me",
    "50%",
    "$5",
]
SPACES = (" ", "  ", "\t", "\n", "\u3000", "\u00a0", " \r\n ")
RANGES = ((0x20, 0x7E), (0xA1, 0x24F), (0x370, 0x5FF), (0x900, 0x97F), (0x3041, 0x9FFF), (0x1F300, 0x1FAFF))


def made_up_strings(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    strings = []
    for number in range(count):
        words = chance.choices(WORDS, k=chance.randint(1, 12))
        if number % 2:
            words += ["".join(character(chance) for _ in range(chance.randint(1, 10))) for _ in range(3)]
        if number % 50 == 0:
            words *= 15  # longer than the window
        chance.shuffle(words)
        strings.append("".join(word + chance.choice(SPACES) for word in words))
    return strings


def character(chance: random.Random) -> str:
    while True:
        found = chr(chance.randint(*chance.choice(RANGES)))
        # Whether an unassigned character is a letter depends on the Unicode version of the regex engine.
        if unicodedata.category(found) != "Cn":
            return found


@pytest.fixture(scope="module")
def reference() -> SimpleTokenizer:
    return SimpleTokenizer()


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(open_clip_tokenizer_json().encode(), clip_text_spec())


def test_ids_equal_open_clips_on_thousands_of_strings(reference: SimpleTokenizer, tokenizer: TextTokenizer) -> None:
    strings = made_up_strings(3000, seed=0)
    compared = 0
    for string in strings:
        try:
            ids = tokenizer(string).ids
        except InvalidText:
            continue  # nothing is left after the clean-up
        wanted = reference(string)[0].tolist()
        assert [*ids, *[0] * (77 - len(ids))] == wanted, ascii(string)
        compared += 1
    assert compared > 2900


def test_special_token_spellings_are_plain_text(reference: SimpleTokenizer, tokenizer: TextTokenizer) -> None:
    text = "a dog <end_of_text> and a cat"
    start, end = reference.all_special_ids
    ids = tokenizer(text).ids
    assert (ids[0], ids[-1]) == (start, end)
    assert end not in ids[1:-1]
    # open_clip takes the spelling for the token and pools there: the cat is lost.
    assert reference(text)[0].tolist().index(end) < len(ids) - 1


def test_over_long_text_keeps_the_end_token_and_says_so(reference: SimpleTokenizer, tokenizer: TextTokenizer) -> None:
    found = tokenizer("dog " * 200)
    assert found.truncated
    assert list(found.ids) == reference("dog " * 200)[0].tolist()


def test_the_file_is_the_same_every_time() -> None:
    first = open_clip_tokenizer_json()
    open_clip_tokenizer_json.cache_clear()
    assert open_clip_tokenizer_json() == first
    assert len(json.loads(first)["model"]["vocab"]) == CLIP_VOCABULARY_SIZE
