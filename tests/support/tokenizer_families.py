"""The tokenizers of the families we serve, each beside its reference implementation.

The published vocabularies of SigLIP, Gemma, XLM-R and the others are not on any package index, so small ones are
trained here with the same settings; the classes that read them are the checkpoints' own.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import open_clip
import sentencepiece
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer

from tests.support.strings import awkward_strings
from twinlens.encoders.clean_text import Clean
from twinlens.encoders.errors import InvalidText
from twinlens.encoders.tokenise import TextTokenizer
from twinlens.training.starter.packages import MINILM_TOKENIZER, read_pinned
from twinlens.training.tokenizers import TokenizerExport, clip_tokenizer, coca_tokenizer, hugging_face_tokenizer

Reference = Callable[[Sequence[str]], list[list[int]]]

OPEN_CLIP_CLEAN: dict[Clean, str] = {
    "clip_lower": "lower",
    "clip_whitespace": "whitespace",
    "canonicalize": "canonicalize",
}
SIGLIP_CONFIG = {
    "tokenizer_class": "T5Tokenizer",
    "extra_ids": 0,
    "legacy": False,
    "pad_token": "</s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}
GEMMA_CONFIG = {
    "tokenizer_class": "GemmaTokenizer",
    "add_bos_token": False,
    "add_eos_token": True,
    "padding_side": "right",
    "pad_token": "<pad>",
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "unk_token": "<unk>",
}
_GEMMA_PIECES = [
    "<mask>",
    "<unused0>",
    "<start_of_turn>",
    "<end_of_turn>",
    *("\n" * n for n in range(1, 6)),
    "\t",
    "\t\t",
    "\u2581\u2581",
    "\u2581\u2581\u2581",
    "<table>",
    "<h1>",
    "</h1>",
    "<p>",
    "<b>",
    "</b>",
]


@dataclass(frozen=True)
class Family:
    """Ours and the reference's tokenizer of one family; the reference gives rows padded to its window."""

    name: str
    export: TokenizerExport
    reference: Reference
    says: str

    @functools.cached_property
    def tokenizer(self) -> TextTokenizer:
        return TextTokenizer(self.export.json.encode(), self.export.spec)

    def row(self, text: str) -> list[int]:
        """Our ids, padded as the bundle says to the window."""
        ids = self.tokenizer(text).ids
        return [*ids, *[self.export.spec.pad_id] * (self.export.spec.context_length - len(ids))]


@dataclass
class Parity:
    """How many strings were compared, and those on which ours differs."""

    compared: int = 0
    refused: int = 0
    different: list[tuple[str, list[int], list[int]]] = field(default_factory=list)

    @property
    def equal(self) -> int:
        return self.compared - len(self.different)


def compare(family: Family, strings: Sequence[str]) -> Parity:
    """Strings of which nothing is left after the clean-up are refused by us, and only counted."""
    parity = Parity()
    kept: list[tuple[str, list[int]]] = []
    for text in strings:
        try:
            kept.append((text, family.row(text)))
        except InvalidText:
            parity.refused += 1
    for (text, ours), wanted in zip(kept, family.reference([text for text, _ in kept]), strict=True):
        parity.compared += 1
        if ours != wanted:
            parity.different.append((text, ours, wanted))
    return parity


class Families:
    """Makes the families, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def clip(self) -> Family:
        return self._simple("CLIP", clip_tokenizer(), open_clip.SimpleTokenizer())

    def clip_short(self) -> Family:
        return self._simple("PE, window 32", clip_tokenizer(32), open_clip.get_tokenizer("PE-Core-B-16"))

    def clip_whitespace(self) -> Family:
        reference = open_clip.SimpleTokenizer(clean="whitespace")
        return self._simple("CLIP, cased", clip_tokenizer(77, "clip_whitespace"), reference)

    def clip_canonicalize(self) -> Family:
        reference = open_clip.SimpleTokenizer(clean="canonicalize")
        return self._simple("CLIP, canonicalize", clip_tokenizer(77, "canonicalize"), reference)

    def mobileclip(self) -> Family:
        return self._simple("MobileCLIP", clip_tokenizer(77), open_clip.get_tokenizer("MobileCLIP2-S2"))

    def coca(self) -> Family:
        return self._simple("CoCa", coca_tokenizer(76), open_clip.get_tokenizer("coca_ViT-L-14"))

    def siglip(self, context: int = 64) -> Family:
        name = "SigLIP" if context == 64 else f"SigLIP, window {context}"
        return self._hf(name, self.siglip_folder(), context, "canonicalize")

    def siglip_short(self) -> Family:
        """ViT-SO400M-14-SigLIP has a window of 16."""
        return self.siglip(16)

    def siglip2(self) -> Family:
        return self._hf("SigLIP 2", self.gemma_folder(), 64, "canonicalize")

    def mt5(self) -> Family:
        folder = self._sentencepiece("mt5", "spiece.model", {"tokenizer_class": "T5Tokenizer", "extra_ids": 10}, _T5)
        return self._hf("mT5 (worldwide)", folder, 77, "canonicalize")

    def xlm_roberta(self) -> Family:
        config = {"tokenizer_class": "XLMRobertaTokenizer"}
        folder = self._sentencepiece("xlmr", "sentencepiece.bpe.model", config, _XLMR)
        return self._hf("XLM-R", folder, 77, "clip_whitespace")

    def nllb(self) -> Family:
        return self._hf("NLLB", self.nllb_folder(), 77, "clip_whitespace")

    def roberta(self) -> Family:
        return self._hf("RoBERTa", self.roberta_folder(), 77, "clip_whitespace")

    def clipa(self) -> Family:
        return self._hf("CLIPA (BERT, separator stripped)", self.bert_folder(), 32, "clip_whitespace", strip_sep=True)

    def minilm(self) -> Family:
        """The starter's own file, against transformers' BertTokenizer made from its vocabulary."""
        path = self.folder / "minilm" / "tokenizer.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(read_pinned(MINILM_TOKENIZER))
        export = hugging_face_tokenizer(path, context_length=128, clean="none", pad="longest", attention_mask=True)
        return Family("MiniLM (WordPiece)", export, _plain(self.bert_folder(), 128), "transformers BertTokenizer")

    def transformers_clip(self) -> Family:
        folder = self.clip_folder()
        export = hugging_face_tokenizer(folder, context_length=77, clean="none", pad="longest", attention_mask=False)
        return Family("CLIP of transformers", export, _plain(folder, 77), "transformers CLIPTokenizer")

    def clip_folder(self) -> Path:
        """CLIP's vocabulary as transformers' folders hold it."""
        folder = self.folder / "clip"
        if not folder.is_dir():
            folder.mkdir()
            model = json.loads(clip_tokenizer().json)["model"]
            names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
            _write(folder / "vocab.json", {names.get(token, token): number for token, number in model["vocab"].items()})
            merges = [" ".join(merge) for merge in model["merges"]]
            (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]), encoding="utf-8")
            _write(folder / "tokenizer_config.json", {"tokenizer_class": "CLIPTokenizer"})
        return folder

    def published(self, folder: Path, context: int, clean: Clean) -> Family:
        """A published tokenizer in a folder of its own."""
        return self._hf(folder.name, folder, context, clean)

    def siglip_folder(self) -> Path:
        return self._sentencepiece("siglip", "spiece.model", SIGLIP_CONFIG, _T5)

    def gemma_folder(self) -> Path:
        return self._sentencepiece("siglip2", "tokenizer.model", GEMMA_CONFIG, _GEMMA)

    def nllb_folder(self) -> Path:
        settings = {**_XLMR, "model_type": "bpe", "user_defined_symbols": ["eng_Latn", "deu_Latn"]}
        config = {"tokenizer_class": "NllbTokenizer", "src_lang": "eng_Latn"}
        return self._sentencepiece("nllb", "sentencepiece.bpe.model", config, settings)

    def bert_folder(self) -> Path:
        folder = self.folder / "bert"
        if not folder.is_dir():
            folder.mkdir()
            vocabulary = json.loads(read_pinned(MINILM_TOKENIZER))["model"]["vocab"]
            (folder / "vocab.txt").write_text(
                "\n".join(sorted(vocabulary, key=vocabulary.__getitem__)), encoding="utf-8"
            )
            _write(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": True})
        return folder

    def roberta_folder(self) -> Path:
        folder = self.folder / "roberta"
        if not folder.is_dir():
            folder.mkdir()
            trained = ByteLevelBPETokenizer()
            special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
            trained.train_from_iterator(_corpus(), vocab_size=3000, special_tokens=special, show_progress=False)
            trained.save_model(str(folder))
            _write(folder / "tokenizer_config.json", {"tokenizer_class": "RobertaTokenizer"})
        return folder

    def saved(self, folder: Path) -> Path:
        """The folder as transformers saves it: with a `tokenizer.json`, without the vocabulary's own file."""
        saved = folder.with_name(folder.name + "-saved")
        if not saved.is_dir():
            AutoTokenizer.from_pretrained(folder).save_pretrained(saved)
        return saved

    def _simple(self, name: str, export: TokenizerExport, reference: Any) -> Family:
        return Family(name, export, lambda texts: reference(list(texts)).tolist(), "open_clip SimpleTokenizer")

    def _hf(self, name: str, folder: Path, context: int, clean: Clean, *, strip_sep: bool = False) -> Family:
        reference = open_clip.tokenizer.HFTokenizer(
            str(folder), context_length=context, clean=OPEN_CLIP_CLEAN[clean], strip_sep_token=strip_sep
        )
        export = hugging_face_tokenizer(
            folder, context_length=context, clean=clean, pad="context", attention_mask=False, strip_sep=strip_sep
        )
        says = f"open_clip HFTokenizer over {type(reference.tokenizer).__name__}"
        return Family(name, export, lambda texts: reference(list(texts)).tolist(), says)

    def _sentencepiece(self, name: str, file: str, config: dict[str, Any], settings: dict[str, Any]) -> Path:
        folder = self.folder / name
        if not folder.is_dir():
            folder.mkdir()
            written = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(_corpus()),
                model_writer=written,
                vocab_size=4000,
                minloglevel=3,
                num_threads=1,
                character_coverage=0.98,
                **settings,
            )
            (folder / file).write_bytes(written.getvalue())
            _write(folder / "tokenizer_config.json", config)
        return folder


_T5: dict[str, Any] = {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
_XLMR: dict[str, Any] = {"model_type": "unigram"}
_GEMMA: dict[str, Any] = {
    "model_type": "bpe",
    "pad_id": 0,
    "eos_id": 1,
    "bos_id": 2,
    "unk_id": 3,
    "eos_piece": "<eos>",
    "bos_piece": "<bos>",
    "byte_fallback": True,
    "split_digits": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": False,
    "allow_whitespace_only_pieces": True,
    "user_defined_symbols": _GEMMA_PIECES,
}


@functools.cache
def _corpus() -> tuple[str, ...]:
    return tuple(awkward_strings(4000, seed=9))


def _plain(folder: Path, context: int) -> Reference:
    loaded = AutoTokenizer.from_pretrained(folder)

    def reference(texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        rows: list[list[int]] = loaded(list(texts), padding="max_length", truncation=True, max_length=context)[
            "input_ids"
        ]
        return rows

    return reference


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
