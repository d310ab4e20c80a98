"""Token ids against each family's reference implementation, on thousands of awkward strings and on real captions."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.strings import awkward_strings, million, real_strings
from tests.support.tokenizer_families import Families, Family, compare
from twinlens.encoders.tokenise import TextTokenizer

FAMILIES = (
    "clip",
    "mobileclip",
    "transformers_clip",
    "siglip",
    "siglip2",
    "mt5",
    "xlm_roberta",
    "nllb",
    "roberta",
    "clipa",
    "minilm",
)
# The same tokenizer with another clean-up or window: fewer strings will do.
VARIANTS = ("clip_short", "clip_whitespace", "clip_canonicalize", "coca", "siglip_short")


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, families: Families) -> Family:
    made: Family = getattr(families, request.param)()
    return made


@pytest.fixture(scope="module")
def strings() -> list[str]:
    return awkward_strings(5300)


def check(family: Family, strings: list[str], at_least: int) -> None:
    parity = compare(family, strings)
    assert [(ascii(text), ours, wanted) for text, ours, wanted in parity.different[:3]] == []
    assert parity.equal >= at_least


def test_ids_equal_the_references_on_thousands_of_strings(family: Family, strings: list[str]) -> None:
    check(family, strings, at_least=5000)


@pytest.mark.parametrize("name", VARIANTS)
def test_another_window_or_clean_up_is_the_references_too(families: Families, strings: list[str], name: str) -> None:
    check(getattr(families, name)(), strings[::4], at_least=1000)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["clip", "siglip", "siglip2", "minilm"])
def test_real_captions_and_queries(families: Families, shared_data: Path, name: str) -> None:
    texts = real_strings(shared_data)
    check(getattr(families, name)(), texts[:: len(texts) // 2000], at_least=1900)


@pytest.mark.parametrize("name", ["clip", "siglip", "siglip2", "xlm_roberta", "nllb", "roberta", "clipa"])
def test_long_texts_come_out_as_if_all_had_been_read(families: Families, strings: list[str], name: str) -> None:
    family: Family = getattr(families, name)()
    spec = family.export.spec
    whole = TextTokenizer(family.export.json.encode(), spec.model_copy(update={"context_length": 1_000_000}))
    chance = random.Random(name)
    for _ in range(12):
        parts = chance.choices(strings, k=chance.randint(100, 500))
        # Lines and words of any length, behind gaps and rubbish that the clean-up removes.
        gap = chance.choice((" " * 9000, "?!" * 3000, "\n" * 6000, "&#32;" * 2000, "x" * 7000, ""))
        text = gap + "".join(part + chance.choice(("", " ", " ", "\n", "\u2028")) for part in parts)
        ids = whole(text).ids
        assert len(ids) > spec.context_length
        found = family.tokenizer(text)
        assert found.truncated
        assert found.ids == (*ids[: spec.context_length - 1], ids[-1]), ascii(text[:200])


@pytest.mark.parametrize("kind", ["one letter", "letters", "ideographs", "emoji"])
@pytest.mark.parametrize("name", ["clip", "siglip2", "roberta"])
def test_a_word_of_a_million_characters_gives_the_references_first_ids(
    families: Families, name: str, kind: str
) -> None:
    family: Family = getattr(families, name)()
    # The reference takes minutes for all of it, and byte pairs do not depend on what lies far behind.
    found = family.tokenizer(million(kind))
    assert found.truncated
    assert list(found.ids) == family.reference([million(kind)[:2000]])[0]


# To word pieces any word of more than 100 letters is unknown, whatever its letters.
@pytest.mark.parametrize(
    ("name", "kind"),
    [("siglip", "one letter"), ("siglip", "letters"), ("minilm", "letters"), ("minilm", "ideographs")],
)
def test_unigrams_and_word_pieces_agree_on_the_whole_million(families: Families, name: str, kind: str) -> None:
    family: Family = getattr(families, name)()
    assert family.row(million(kind)) == family.reference([million(kind)])[0]
