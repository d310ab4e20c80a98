from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_bundle import TinyTowers
from twinlens.encoders.clean_text import clean_text
from twinlens.encoders.errors import BundleError, InvalidText
from twinlens.encoders.manifest import TextSpec
from twinlens.encoders.tokenise import TextTokenizer, TokenisedText, collate

TOKENIZER = TinyTowers().tokenizer_json()
PAD, UNK, CLS, SEP = range(4)

TEXTS = [
    "a photo of a dog",
    "  A  Photo\tof\n a DOG  ",
    "fish &amp;amp; chips &lt;3",
    "a cafÃ© with curly “quotes” and ‘these’",
    "a cafe\u0301, \uff41\uff42\uff43 and \ufb01ne",
    "snake_case and-dashes, don't!",
    "一只狗的照片 \U0001f415\u200d\U0001f9ba",
    "\ufeffwith a mark of byte order",
    "C++ & C# {0.__class__} 100%s",
    "İstanbul ẞ ΑΣ",
]


def spec(context: int = 24, **changes: Any) -> TextSpec:
    fields = {"context_length": context, "pad_id": PAD, "pad_to_context": False, "attention_mask": True, **changes}
    return TextSpec(**fields)


def tokenizer(context: int = 24, **changes: Any) -> TextTokenizer:
    return TextTokenizer(TOKENIZER, spec(context, **changes))


def words(count: int) -> str:
    return " ".join(["dog"] * count)


class TestCleaning:
    @pytest.mark.parametrize("text", TEXTS)
    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [("clip_lower", "lower"), ("clip_whitespace", "whitespace"), ("canonicalize", "canonicalize")],
    )
    def test_equals_open_clips(self, text: str, ours: Any, theirs: str) -> None:
        from open_clip.tokenizer import get_clean_fn

        assert clean_text(text, ours) == get_clean_fn(theirs)(text)

    @pytest.mark.parametrize("text", TEXTS)
    def test_none_leaves_the_text_alone(self, text: str) -> None:
        assert clean_text(text, "none") == text


class TestIds:
    def test_special_tokens_come_from_the_file(self) -> None:
        ids = tokenizer()("a dog").ids
        vocabulary = TinyTowers().vocabulary
        assert ids == (CLS, vocabulary["a"], vocabulary["dog"], SEP)

    @pytest.mark.parametrize("typed", ["[SEP]", "[CLS]", "[PAD]", "[UNK]"])
    def test_a_special_token_typed_by_a_user_is_plain_text(self, typed: str) -> None:
        ids = tokenizer()(f"a photo {typed} of a dog").ids
        assert ids[0] == CLS
        assert ids[-1] == SEP
        assert not {PAD, UNK, CLS, SEP} & set(ids[1:-1])
        letters = tokenizer()("sep").ids
        assert len(ids) > len(letters)

    def test_a_special_token_alone_is_plain_text(self) -> None:
        ids = tokenizer()("[SEP]").ids
        assert len(ids) > 3
        assert SEP not in ids[1:-1]

    def test_the_files_own_truncation_and_padding_are_not_used(self) -> None:
        content = json.loads(TOKENIZER)
        content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
        content["padding"] = {
            "strategy": {"Fixed": 40},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        }
        limited = TextTokenizer(json.dumps(content).encode(), spec())
        assert limited(words(10)) == tokenizer()(words(10))

    def test_a_unigram_model_may_have_no_unknown_token(self) -> None:
        from tokenizers import Tokenizer, models

        file = Tokenizer(models.Unigram([("a", -1.0), ("b", -2.0)], None, False)).to_str().encode()
        assert TextTokenizer(file, spec())("aba").ids == (0, 1, 0)

    def test_reads_a_path_as_well_as_bytes(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_bytes(TOKENIZER)
        assert TextTokenizer(tmp_path / "tokenizer.json", spec())("a dog") == tokenizer()("a dog")


class TestTruncation:
    def test_what_fits_is_whole(self) -> None:
        found = tokenizer(context=12)(words(10))
        assert len(found.ids) == 12
        assert not found.truncated

    def test_one_too_many_is_cut_and_reported(self) -> None:
        found = tokenizer(context=12)(words(11))
        assert found.truncated
        assert found.ids == tokenizer(context=12)(words(10)).ids

    def test_the_end_token_is_kept(self) -> None:
        assert tokenizer(context=8)(words(500)).ids[-1] == SEP

    def test_a_tokenizer_without_an_end_token_keeps_the_first_words(self) -> None:
        content = json.loads(TOKENIZER)
        content["post_processor"] = None
        bare = TextTokenizer(json.dumps(content).encode(), spec(3))
        assert bare("a photo of a dog") == TokenisedText(bare("a photo of").ids, truncated=True)

    def test_a_context_shorter_than_the_end_tokens_is_kept_to(self) -> None:
        content = json.loads(TOKENIZER)
        single = content["post_processor"]["single"]
        content["post_processor"]["single"] = [*single, single[-1]]  # as NLLB, which ends in two tokens
        twice = TextTokenizer(json.dumps(content).encode(), spec(1))
        assert twice("a photo of a dog") == TokenisedText((SEP,), truncated=True)

    def test_a_megabyte_of_text_is_cut_like_any_other(self) -> None:
        found = tokenizer(clean="clip_lower")(words(250_000))
        assert found.truncated
        assert len(found.ids) == 24

    def test_of_a_text_of_any_length_only_the_first_lines_are_cleaned(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cleaned: list[int] = []

        def clean(text: str, kind: Any) -> str:
            cleaned.append(len(text))
            return clean_text(text, kind)

        monkeypatch.setattr("twinlens.encoders.tokenise.clean_text", clean)
        expected = tokenizer(clean="clip_lower")(words(1000))
        assert tokenizer(clean="clip_lower")("two dogs\n" * 200_000).truncated
        assert max(cleaned) < 5000
        assert tokenizer(clean="clip_lower")("\n" * 20_000 + words(20_000)) == expected

    @pytest.mark.parametrize("clean", ["none", "clip_lower", "clip_whitespace", "canonicalize"])
    @pytest.mark.parametrize("gap", [" ", "\n", "\r", "\u3000", "\x1b[31m", " &#32;"])
    def test_words_behind_a_long_gap_are_found(self, clean: str, gap: str) -> None:
        apart = "dog " + gap * 30_000 + " two"
        if clean != "none" or gap.isspace():
            assert tokenizer(clean=clean)(apart) == tokenizer(clean=clean)("dog two")
        else:
            assert tokenizer(clean=clean)(apart).truncated

    def test_a_word_behind_a_million_marks_that_the_clean_up_removes_is_found(self) -> None:
        assert tokenizer(clean="canonicalize")("?" * 1_000_000 + "dog") == tokenizer()("dog")

    @pytest.mark.parametrize("filler", [" ", "?"])
    def test_beyond_two_million_characters_nothing_is_read(self, filler: str) -> None:
        found = tokenizer(clean="canonicalize")("dog" + filler * 2_000_000 + "dog")
        assert found == TokenisedText(tokenizer()("dog").ids, truncated=True)

    def test_a_line_is_judged_as_a_whole(self) -> None:
        # Mojibake is undone where all of the line can be read so, and may stay where a later letter speaks against it.
        fixed, kept = "caf\u00c3\u00a9 " + "x " * 5000, "caf\u00c3\u00a9 " + "x " * 5000 + "\u72d7"
        for text in (fixed, kept):
            cut = tokenizer(clean="clip_lower")(text)
            assert cut.ids[:-1] == tokenizer(20_000)(clean_text(text, "clip_lower")).ids[:23]

    def test_what_lies_beyond_is_still_refused(self) -> None:
        with pytest.raises(InvalidText, match="NUL"):
            tokenizer()(words(100_000) + "\0")


class TestRefusals:
    @pytest.mark.parametrize("text", ["", " ", "\n\t  \u3000"])
    def test_empty_text(self, text: str) -> None:
        with pytest.raises(InvalidText, match="the text is empty"):
            tokenizer()(text)

    def test_text_that_clean_up_leaves_empty(self) -> None:
        with pytest.raises(InvalidText, match="nothing is left"):
            tokenizer(clean="canonicalize")("?!...")

    def test_nul(self) -> None:
        with pytest.raises(InvalidText, match="NUL"):
            tokenizer()("a photo\0 of a dog")

    @pytest.mark.parametrize("text", ["\ud83d", "a \udc00 dog", "\udfff\ud800"])
    def test_lone_surrogate(self, text: str) -> None:
        with pytest.raises(InvalidText, match="lone surrogate"):
            tokenizer()(text)

    @pytest.mark.parametrize("text", ["a dog\x07\x1b[31m", "a \u202egod", "\ue000\uf8ff", "pho\u200bto"])
    def test_odd_but_whole_characters_are_taken(self, text: str) -> None:
        assert tokenizer(clean="clip_lower")(text).ids

    @pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b'{"model": 3}'])
    def test_a_broken_tokenizer_file(self, raw: bytes) -> None:
        with pytest.raises(BundleError, match=r"^the tokenizer cannot be read: [^\n]+$"):
            TextTokenizer(raw, spec())

    def test_a_missing_tokenizer_file(self, tmp_path: Path) -> None:
        with pytest.raises(BundleError, match="tokenizer"):
            TextTokenizer(tmp_path / "tokenizer.json", spec())


class TestCollate:
    batch = (TokenisedText((2, 5, 3), truncated=False), TokenisedText((2, 5, 6, 7, 3), truncated=False))

    def test_pads_to_the_longest(self) -> None:
        ids, mask = collate(self.batch, spec(pad_id=9))
        assert ids.dtype == mask.dtype == np.int64
        np.testing.assert_array_equal(ids, [[2, 5, 3, 9, 9], [2, 5, 6, 7, 3]])
        np.testing.assert_array_equal(mask, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])

    def test_pads_to_the_context_length(self) -> None:
        ids, mask = collate(self.batch, spec(context=7, pad_to_context=True))
        assert ids.shape == mask.shape == (2, 7)
        assert mask.sum() == 8

    def test_an_empty_batch(self) -> None:
        ids, mask = collate([], spec())
        assert ids.shape == mask.shape == (0, 0)


def test_texts_that_share_an_object_are_tokenised_the_same_from_many_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    shared = tokenizer(clean="clip_lower")
    alone = [shared(text) for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(shared, TEXTS * 20)) == alone * 20
