"""CLIP's byte-pair encoding as a Hugging Face `tokenizers` file, which serving reads without torch."""

from __future__ import annotations

import functools
import gzip
import json
from importlib import util
from pathlib import Path

from twinlens.encoders.clean_text import Clean
from twinlens.encoders.manifest import TextSpec
from twinlens.training.export.errors import ExportError
from twinlens.training.tokenizers.tokenizer_export import TokenizerExport

START, END = "<start_of_text>", "<end_of_text>"
CLIP_VOCABULARY_SIZE = 49_408
_VOCABULARY_FILE = "bpe_simple_vocab_16e6.txt.gz"
# open_clip's pattern without its special tokens: their spellings are plain text for us. U+0345, a mark whose upper case
# is a letter, is in none of the pattern's classes when case is ignored, and so is dropped.
_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|\p{L}+|\p{N}|[^\s\p{L}\p{N}\x{345}]+"


def clip_tokenizer(context_length: int = 77, clean: Clean = "clip_lower") -> TokenizerExport:
    """The tokenizer of CLIP, MobileCLIP, EVA, ViTamin, PE and all else that open_clip gives its `SimpleTokenizer`.

    Args:
        context_length: The tower's window.
        clean: open_clip's `clean` option: `clip_lower` unless the model's configuration says otherwise.

    Raises:
        ExportError: if open_clip is not installed or ships another vocabulary.
    """
    spec = TextSpec(clean=clean, context_length=context_length, pad_id=0, pad_to_context=True, attention_mask=False)
    return TokenizerExport(tokenizer_json(), spec)


def coca_tokenizer(context_length: int = 76) -> TokenizerExport:
    """CoCa's: CLIP's tokenizer. The window is one shorter, as the tower itself appends the token it pools.

    Raises:
        ExportError: as `clip_tokenizer`.
    """
    return clip_tokenizer(context_length)


@functools.cache
def tokenizer_json() -> str:
    """CLIP's byte-pair encoding (Radford et al. 2021), from the vocabulary that open_clip ships.

    The clean-up (ftfy, HTML entities, white space, lower case) is not in the file: it belongs to `TextSpec.clean`.

    Raises:
        ExportError: if open_clip is not installed or ships another vocabulary.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, processors  # noqa: PLC0415

    merges = _merges()
    alphabet = _byte_alphabet()
    tokens = [*alphabet, *(f"{letter}</w>" for letter in alphabet), *("".join(merge) for merge in merges), START, END]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != CLIP_VOCABULARY_SIZE:
        raise ExportError(f"open_clip's vocabulary has {len(vocabulary)} tokens, {CLIP_VOCABULARY_SIZE} expected")
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(START, vocabulary[START]), (END, vocabulary[END])]
    )
    tokenizer.add_special_tokens([AddedToken(START, normalized=False), AddedToken(END, normalized=False)])
    text: str = tokenizer.to_str()
    # The library writes the vocabulary in an order of its own; sorted, the file is the same every time.
    return json.dumps(json.loads(text), ensure_ascii=False, sort_keys=True)


def _merges() -> list[tuple[str, str]]:
    # Found without importing open_clip, which pulls in torchvision and timm: seconds.
    spec = util.find_spec("open_clip")
    if spec is None or spec.origin is None:
        raise ExportError("CLIP's vocabulary comes with open_clip: pip install 'twinlens[train]'")
    path = Path(spec.origin).parent / _VOCABULARY_FILE
    if not path.is_file():
        raise ExportError(f"this open_clip ships no {_VOCABULARY_FILE}")
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")
    # The first line is a version; the file goes on past the merges CLIP uses (512 byte tokens, 2 special ones).
    wanted = lines[1 : CLIP_VOCABULARY_SIZE - 512 - 2 + 1]
    pairs = [tuple(line.split()) for line in wanted]
    return [(first, second) for first, second in pairs]


def _byte_alphabet() -> list[str]:
    """GPT-2's letters for the 256 bytes, in the order CLIP numbers them."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(others))]
