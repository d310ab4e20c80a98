from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.support.strings import awkward_strings
from tests.support.tokenizer_families import Families, Family, compare
from twinlens.encoders.tokenise import TextTokenizer, TokenisedText, collate
from twinlens.training.export.errors import ExportError
from twinlens.training.tokenizers import TokenizerExport, hugging_face_tokenizer

TEXTS = [*awkward_strings(5300)[::17], *awkward_strings(400)]


def read(source: Path | str, context: int = 64, **changes: Any) -> TokenizerExport:
    options: dict[str, Any] = {"clean": "none", "pad": "context", "attention_mask": False, **changes}
    return hugging_face_tokenizer(source, context_length=context, **options)


def ids(export: TokenizerExport, text: str) -> list[int]:
    return list(TextTokenizer(export.json.encode(), export.spec)(text).ids)


def as_transformers_loads(folder: Path, **options: Any) -> Family:
    """Ours of a folder beside what transformers makes of the same folder."""
    reference: Any = AutoTokenizer.from_pretrained(folder, **options)

    def rows(texts: Any) -> list[list[int]]:
        encoded: list[list[int]] = reference(list(texts), padding="max_length", truncation=True, max_length=64)[
            "input_ids"
        ]
        return encoded

    return Family(folder.name, read(folder), rows, "AutoTokenizer")


def configured(folder: Path, copy: Path, **config: Any) -> Path:
    """A copy of a folder, with other settings in tokenizer_config.json; None takes one away."""
    shutil.copytree(folder, copy)
    path = copy / "tokenizer_config.json"
    merged = {**json.loads(path.read_text(encoding="utf-8")), **config}
    path.write_text(json.dumps({key: value for key, value in merged.items() if value is not None}), encoding="utf-8")
    return copy


def check(family: Family) -> None:
    parity = compare(family, TEXTS)
    assert [(ascii(text), ours, wanted) for text, ours, wanted in parity.different[:3]] == []
    assert parity.equal > 600


class TestSources:
    @pytest.mark.parametrize("name", ["siglip_folder", "gemma_folder", "nllb_folder", "bert_folder", "roberta_folder"])
    def test_a_folder_with_tokenizer_json_gives_the_ids_of_one_with_the_vocabulary(
        self, families: Families, name: str
    ) -> None:
        folder: Path = getattr(families, name)()
        saved = families.saved(folder)
        assert (saved / "tokenizer.json").is_file()
        assert read(saved).spec == read(folder).spec
        family = as_transformers_loads(saved)
        check(family)
        check(Family("", read(folder), family.reference, ""))

    def test_a_bare_unigram_model_is_read_as_siglips(self, families: Families, tmp_path: Path) -> None:
        shutil.copy(families.siglip_folder() / "spiece.model", tmp_path / "vocabulary.model")
        bare, folder = read(tmp_path / "vocabulary.model"), read(families.siglip_folder())
        assert bare == folder
        assert bare.spec.pad_id == 1

    def test_a_bare_byte_pair_model_is_read_as_siglip_2s(self, families: Families, tmp_path: Path) -> None:
        shutil.copy(families.gemma_folder() / "tokenizer.model", tmp_path / "tokenizer.model")
        bare, folder = read(tmp_path / "tokenizer.model"), read(families.gemma_folder())
        assert bare == folder
        assert bare.spec.pad_id == 0
        assert ids(bare, "dog")[-1] == 1  # the end token, and no begin token

    @pytest.mark.parametrize("cased", [False, True])
    def test_a_bare_word_piece_vocabulary_is_lower_cased_if_it_is(self, tmp_path: Path, cased: bool) -> None:
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "Dog" if cased else "cat"]
        (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
        assert ids(read(tmp_path / "vocab.txt"), "Dog") == [2, 6 if cased else 5, 3]

    def test_a_bare_tokenizer_json_is_read_as_it_is(self, families: Families) -> None:
        path = families.saved(families.bert_folder()) / "tokenizer.json"
        assert ids(read(path), "A café") == ids(read(path.parent), "A café")

    def test_the_result_is_the_same_every_time(self, families: Families) -> None:
        assert read(families.siglip_folder()) == read(families.siglip_folder())

    def test_a_name_that_is_nowhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(ExportError, match=r"^cannot download the tokenizer nobody/nothing [^\n]+$") as caught:
            read("hf-hub:nobody/nothing")
        assert "(no folder here): no network (HF_HUB_OFFLINE is set); put its tokenizer.json" in str(caught.value)

    def test_an_earlier_download_of_other_files_is_completed(
        self, families: Families, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Weights of the same repository may have been fetched before its tokenizer."""
        whole = families.saved(families.bert_folder())

        def snapshot(*_: Any, local_files_only: bool = False, **__: Any) -> str:
            return str(tmp_path if local_files_only else whole)

        monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
        monkeypatch.setattr("twinlens.training.hub._unreachable", lambda _: None)
        assert ids(read("somebody/something"), "dog") == ids(read(whole), "dog")

    @pytest.mark.parametrize("name", ["nowhere/tokenizer.json", "./nowhere", "/nowhere"])
    def test_a_path_that_does_not_exist(self, name: str) -> None:
        with pytest.raises(ExportError, match=r"^no tokenizer at [^\n]+$"):
            read(name)

    def test_a_folder_without_a_tokenizer(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text("{}", encoding="utf-8")
        with pytest.raises(ExportError, match=r"holds no tokenizer"):
            read(tmp_path)

    @pytest.mark.parametrize("name", ["weights.bin", "notes.txt"])
    def test_a_file_that_is_none(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"\x00")
        with pytest.raises(ExportError, match=r"is not a tokenizer"):
            read(tmp_path / name)

    @pytest.mark.parametrize("name", ["tokenizer.json", "spiece.model", "tokenizer_config.json"])
    def test_a_damaged_file(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
        (tmp_path / name).write_bytes(b"{{")
        with pytest.raises(ExportError, match=r"^[^\n]+ is not (JSON|a tokenizers file|a sentencepiece model)[^\n]*$"):
            read(tmp_path if name == "tokenizer_config.json" else tmp_path / name)

    def test_a_vocabulary_without_transformers_to_convert_it(
        self, families: Families, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(ExportError, match=r"pip install 'twinlens\[huggingface\]'"):
            read(families.siglip_folder())
        assert read(families.saved(families.siglip_folder())).spec.pad_id == 1


class TestTheConfigurationWins:
    @pytest.mark.parametrize("saved", [False, True])
    @pytest.mark.parametrize(
        "config",
        [
            {"do_lower_case": False},
            {"do_lower_case": None},
            {"do_lower_case": False, "strip_accents": True},
            {"strip_accents": False},
            {"tokenize_chinese_chars": False},
        ],
    )
    def test_over_berts_normalizer(
        self, families: Families, tmp_path: Path, config: dict[str, Any], saved: bool
    ) -> None:
        folder = families.saved(families.bert_folder()) if saved else families.bert_folder()
        check(as_transformers_loads(configured(folder, tmp_path / "bert", **config)))

    @pytest.mark.parametrize("wanted", [False, True])
    def test_over_the_blank_before_the_first_word(self, families: Families, tmp_path: Path, wanted: bool) -> None:
        folder = families.saved(families.roberta_folder())
        check(as_transformers_loads(configured(folder, tmp_path / "roberta", add_prefix_space=wanted)))

    @pytest.mark.parametrize(("begin", "end"), [(True, True), (True, False), (False, True), (False, False)])
    def test_but_not_over_begin_and_end_tokens(
        self, families: Families, tmp_path: Path, begin: bool, end: bool
    ) -> None:
        made = configured(families.gemma_folder(), tmp_path / "gemma", add_bos_token=begin, add_eos_token=end)
        family = as_transformers_loads(made)
        check(family)
        assert (family.row("dog")[0] == 2, 1 in family.row("dog")) == (begin, end)
        saved = configured(families.saved(made), tmp_path / "saved", add_bos_token=not begin, add_eos_token=not end)
        check(as_transformers_loads(saved))
        assert read(saved) == read(made)

    @pytest.mark.parametrize("legacy", [False, True])
    @pytest.mark.parametrize("language", ["deu_Latn", "eng_Latn"])
    def test_over_nllbs_language(self, families: Families, tmp_path: Path, language: str, legacy: bool) -> None:
        folder = families.saved(families.nllb_folder())
        check(as_transformers_loads(configured(folder, tmp_path / "nllb", src_lang=language, legacy_behaviour=legacy)))

    def test_a_language_the_vocabulary_lacks_is_refused(self, families: Families, tmp_path: Path) -> None:
        folder = configured(families.saved(families.nllb_folder()), tmp_path / "nllb", src_lang="fra_Latn")
        with pytest.raises(ExportError, match=r"lacks the token of its language, 'fra_Latn'"):
            read(folder)

    def test_siglip_2_is_lower_cased_although_its_class_is_gemmas(self, families: Families, tmp_path: Path) -> None:
        folder = configured(families.saved(families.gemma_folder()), tmp_path / "siglip2")
        (folder / "config.json").write_text('{"model_type": "siglip2"}', encoding="utf-8")
        check(as_transformers_loads(folder, padding_side="right"))
        assert ids(read(folder), "A DOG") == ids(read(folder), "a dog")

    @pytest.mark.parametrize("side", ["padding_side", "truncation_side"])
    def test_the_left_is_refused(self, families: Families, tmp_path: Path, side: str) -> None:
        folder = configured(families.saved(families.gemma_folder()), tmp_path / "left", **{side: "left"})
        with pytest.raises(ExportError, match=f"has {side} = 'left'; only right is served"):
            read(folder)

    def test_words_that_only_the_configuration_adds_are_refused(self, families: Families, tmp_path: Path) -> None:
        added = {"99999": {"content": "<tag>", "special": False}}
        folder = configured(families.saved(families.roberta_folder()), tmp_path / "added", added_tokens_decoder=added)
        with pytest.raises(ExportError, match=r"adds the token '<tag>', which tokenizer.json lacks"):
            read(folder)


class TestPadding:
    def test_the_files_own_padding_and_truncation_are_left_out(self, families: Families, tmp_path: Path) -> None:
        """all-MiniLM's file pads everything to 128, and such padding in the mean is a public bug of several servers."""
        folder = families.saved(families.bert_folder())
        content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        content["padding"] = {
            "strategy": {"Fixed": 128},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        }
        content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
        (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
        export = read(tmp_path, pad="longest", attention_mask=True)
        written = json.loads(export.json)
        assert written["padding"] is None
        assert written["truncation"] is None
        tokens = [TokenisedText(tuple(ids(export, text)), truncated=False) for text in ("dog", "a dog and a cat")]
        rows, mask = collate(tokens, export.spec)
        assert rows.shape == mask.shape == (2, 7)

    def test_siglip_pads_to_the_window_with_its_end_token(self, families: Families) -> None:
        family = families.siglip()
        assert (family.export.spec.pad_id, family.export.spec.pad_to_context) == (1, True)
        rows, _ = collate([family.tokenizer("a dog")], family.export.spec)
        assert rows.tolist() == family.reference(["a dog"])
        assert rows.shape == (1, 64)

    def test_an_exclamation_mark_that_pads_is_still_an_exclamation_mark(
        self, families: Families, tmp_path: Path
    ) -> None:
        """Published CLIP folders name `!` as the padding token; transformers then reads every `!` as padding."""
        folder = families.saved(families.roberta_folder())
        content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        number = content["model"]["vocab"]["!"]
        content["added_tokens"].append(
            {"id": number, "content": "!", "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False, "special": True}
        )
        (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
        config = {"tokenizer_class": "RobertaTokenizer", "pad_token": "!"}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        marked = read(tmp_path)
        assert marked.spec.pad_id == number
        assert ids(marked, "two dogs!!!") == ids(read(folder), "two dogs!!!")

    def test_without_a_padding_token_there_is_nothing_to_pad_with(self, families: Families, tmp_path: Path) -> None:
        folder = families.saved(families.roberta_folder())
        text = (folder / "tokenizer.json").read_text(encoding="utf-8").replace('"<pad>"', '"<other>"')
        (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
        with pytest.raises(ExportError, match=r"names no pad_token; add one"):
            read(tmp_path)
        # A masked token may be any.
        assert read(tmp_path, pad="longest", attention_mask=True).spec.pad_id == 0

    def test_a_padding_token_that_the_file_lacks_is_named(self, families: Families, tmp_path: Path) -> None:
        """transformers would add it under a new id, for which the model has no row."""
        folder = configured(families.saved(families.roberta_folder()), tmp_path / "clip", pad_token="<|endoftext|>")
        reason = r"names '<\|endoftext\|>' as its pad_token, but tokenizer\.json has no such token"
        with pytest.raises(ExportError, match=f"^the tokenizer of clip {reason}"):
            read(folder)
        assert (
            read(folder, pad="longest", attention_mask=True).spec.pad_id
            == read(folder.parent / "clip" / "tokenizer.json").spec.pad_id
        )


class TestStrippedSeparator:
    def test_the_text_is_cut_where_the_reference_cuts_it(self, families: Families) -> None:
        family = families.clipa()
        long = "dog " * 100
        found = family.tokenizer(long)
        assert found.truncated
        assert list(found.ids) == family.reference([long])[0]
        assert (len(found.ids), found.ids[-1]) == (32, 0)

    def test_of_a_tokenizer_without_one(self, families: Families) -> None:
        with pytest.raises(ExportError, match=r"ends a text with no separator"):
            read(families.siglip_folder(), strip_sep=True)


class TestSentenceTransformers:
    def folder(self, families: Families, copy: Path, **settings: Any) -> Path:
        configured(families.saved(families.roberta_folder()), copy)
        (copy / "modules.json").write_text("[]", encoding="utf-8")
        (copy / "sentence_bert_config.json").write_text(
            json.dumps({"max_seq_length": 64, **settings}), encoding="utf-8"
        )
        return copy

    def test_texts_are_stripped_before_the_tokenizer(self, families: Families, tmp_path: Path) -> None:
        folder = self.folder(families, tmp_path / "st")
        family = as_transformers_loads(folder)
        stripped = Family("", family.export, lambda texts: family.reference([text.strip() for text in texts]), "")
        check(stripped)
        assert family.row("  dog") != family.reference(["  dog"])[0]

    def test_and_lower_cased_where_its_settings_say_so(self, families: Families, tmp_path: Path) -> None:
        folder = self.folder(families, tmp_path / "st", do_lower_case=True)
        assert ids(read(folder), "A DOG") == ids(read(folder), "a dog")


def test_serving_needs_neither_torch_nor_transformers_nor_sentencepiece(families: Families, tmp_path: Path) -> None:
    for name in ("siglip", "siglip2", "clip"):
        family: Family = getattr(families, name)()
        (tmp_path / f"{name}.json").write_text(family.export.json, encoding="utf-8")
        (tmp_path / f"{name}.spec.json").write_text(family.export.spec.model_dump_json(), encoding="utf-8")
    script = (
        "import pathlib, sys\n"
        "from twinlens.encoders.manifest import TextSpec\n"
        "from twinlens.encoders.tokenise import TextTokenizer\n"
        f"for path in pathlib.Path({str(tmp_path)!r}).glob('*.spec.json'):\n"
        "    spec = TextSpec.model_validate_json(path.read_text())\n"
        "    file = path.with_name(path.name.replace('.spec', ''))\n"
        "    assert TextTokenizer(file, spec)('two dogs').ids\n"
        "heavy = {'torch', 'transformers', 'sentencepiece', 'open_clip', 'onnx', 'google.protobuf'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
