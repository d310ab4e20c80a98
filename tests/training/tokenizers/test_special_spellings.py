"""Spellings of special tokens in a user's text: plain text for us, a token to the references."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sentencepiece
from transformers import AutoTokenizer

from tests.support.strings import SPECIAL_SPELLINGS, WORDS
from tests.support.tokenizer_families import Families, Family
from twinlens.encoders.tokenise import TextTokenizer
from twinlens.training.tokenizers import hugging_face_tokenizer

NAMES = ("clip", "transformers_clip", "siglip", "siglip2", "mt5", "xlm_roberta", "nllb", "roberta", "clipa", "minilm")
TEMPLATES = ("{0}", "a dog {0} and a cat", "dog{0}cat", "{0}{0}", "{0} dog", "dog {0}")


def ids_of(family: Family, *tokens: str) -> set[int]:
    """The ids of these tokens, or without any of all special ones."""
    added = json.loads(family.export.json)["added_tokens"]
    return {token["id"] for token in added if (token["content"] in tokens if tokens else token["special"])}


@pytest.mark.parametrize("name", NAMES)
def test_no_text_gives_a_special_id(families: Families, name: str) -> None:
    family: Family = getattr(families, name)()
    # Without the clean-up, which would take most spellings apart.
    tokenizer = TextTokenizer(family.export.json.encode(), family.export.spec.model_copy(update={"clean": "none"}))
    special = ids_of(family)
    # Unknown characters give the unknown token, which is no reading of a spelling.
    unknown = ids_of(family, "<unk>", "[UNK]")
    dog = tokenizer("dog").ids
    begin, end = int(dog[0] in special), len(dog) - int(dog[-1] in special or name == "clipa")
    around = len(dog) - end
    spellings = dict.fromkeys([*SPECIAL_SPELLINGS, *_special_spellings(family)])
    leaking = []
    for text in [template.format(spelling) for spelling in spellings for template in TEMPLATES]:
        ids = list(tokenizer(text).ids)
        if (special - unknown) & set(ids[begin : len(ids) - around]):
            leaking.append((text, ids))
    assert leaking == []


def _special_spellings(family: Family) -> list[str]:
    return [token["content"] for token in json.loads(family.export.json)["added_tokens"] if token["special"]]


@pytest.mark.parametrize(
    ("name", "typed", "token"),
    [
        ("xlm_roberta", "</s>", "</s>"),
        ("nllb", "</s>", "</s>"),
        ("roberta", "</s>", "</s>"),
        ("minilm", "[SEP]", "[SEP]"),
        ("clipa", "[CLS]", "[CLS]"),
    ],
)
def test_the_reference_takes_a_spelling_for_the_token(families: Families, name: str, typed: str, token: str) -> None:
    family: Family = getattr(families, name)()
    (number,) = ids_of(family, token)
    text = f"a dog {typed} and a cat"
    theirs = family.reference([text])[0]
    ours = family.row(text)
    plain = [family.reference(["a dog and a cat"])[0].count(number), family.row("a dog and a cat").count(number)]
    assert theirs.count(number) == plain[0] + 1
    assert ours.count(number) == plain[1]


def test_siglips_clean_up_takes_the_spellings_apart_in_the_reference_too(families: Families) -> None:
    for name in ("siglip", "siglip2"):
        family: Family = getattr(families, name)()
        for typed in ("</s>", "<pad>", "<eos>", "<bos>", "<start_of_turn>", "<h1>"):
            assert family.row(f"a dog {typed} cat") == family.reference([f"a dog {typed} cat"])[0]


def test_to_a_unigram_model_they_are_what_sentencepiece_makes_of_them(families: Families) -> None:
    folder = families.siglip_folder()
    export = hugging_face_tokenizer(folder, context_length=64, clean="none", pad="context", attention_mask=False)
    tokenizer = TextTokenizer(export.json.encode(), export.spec)
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    for spelling in ("</s>", "<pad>", "<unk>"):
        for text in (spelling, f"a dog {spelling} and a cat", f"dog{spelling}cat"):
            assert list(tokenizer(text).ids) == [*model.encode(text), 1], text


@pytest.mark.parametrize("saved", [False, True])
def test_added_tokens_that_are_not_special_stay_tokens(families: Families, saved: bool) -> None:
    """Gemma's HTML tags and runs of blanks are ordinary parts of its vocabulary."""
    folder = families.gemma_folder()
    folder = families.saved(folder) if saved else folder
    reference: Any = AutoTokenizer.from_pretrained(families.gemma_folder())
    export = hugging_face_tokenizer(folder, context_length=64, clean="none", pad="context", attention_mask=False)
    tokenizer = TextTokenizer(export.json.encode(), export.spec)
    for text in (
        "a <b>dog</b>\n\n\ncat",
        "<table><h1>two</h1>",
        "a   dog    cat",
        "\t\tdog \n dog",
        *WORDS["entities"],
    ):
        assert list(tokenizer(text).ids) == reference(text)["input_ids"], text
    assert tokenizer("<h1>").ids[0] in ids_of(Family("", export, lambda _: [], ""), "<h1>")
