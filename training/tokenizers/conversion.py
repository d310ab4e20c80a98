"""Sentencepiece models, WordPiece vocabularies and byte-level merges as `tokenizers` files, by transformers' means."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from twinlens.training.export.errors import ExportError
from twinlens.training.tokenizers.source import (
    BYTE_BPE_FILES,
    CONFIG_FILE,
    SENTENCEPIECE_FILES,
    SPECIAL_TOKENS_FILE,
    WORDPIECE_FILE,
    TokenizerSource,
)

# Read as open_clip's SigLipTokenizer reads the vocabularies of SigLIP and SigLIP 2: `</s>` pads the former.
SIGLIP: Final = {
    "tokenizer_class": "T5Tokenizer",
    "extra_ids": 0,
    "pad_token": "</s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}
SIGLIP2: Final = {
    "tokenizer_class": "GemmaTokenizer",
    "add_bos_token": False,
    "add_eos_token": True,
    "padding_side": "right",
    "pad_token": "<pad>",
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "unk_token": "<unk>",
}
_NEEDED = "pip install 'twinlens[huggingface]'"


def convert(found: TokenizerSource) -> tuple[dict[str, Any], TokenizerSource]:
    """Writes what a folder or file without `tokenizer.json` holds as one.

    Returns:
        The contents of the `tokenizer.json`, and the source with the configuration it was read with.

    Raises:
        ExportError: if transformers is not installed, or cannot read it.
    """
    config = found.config or _config_of(found)
    # Of transformers' sentencepiece-only class the vocabulary is T5's; its clean-up is ours to do.
    if str(config.get("tokenizer_class", "")).startswith("SiglipTokenizer"):
        config = {**SIGLIP, **config, "tokenizer_class": "T5Tokenizer"}
    with tempfile.TemporaryDirectory() as folder:
        _copy(found, config, Path(folder))
        text = _convert(Path(folder), found.name)
    return json.loads(text), TokenizerSource(found.name, found.folder, found.file, config)


def _copy(found: TokenizerSource, config: dict[str, Any], folder: Path) -> None:
    sentencepiece = found.find(*SENTENCEPIECE_FILES) or (found.file if _is_sentencepiece(found.file) else None)
    if sentencepiece is not None:
        # Each class looks for a name of its own.
        for name in SENTENCEPIECE_FILES:
            shutil.copy(sentencepiece, folder / name)
    for name in (WORDPIECE_FILE, *BYTE_BPE_FILES, SPECIAL_TOKENS_FILE, "added_tokens.json"):
        path = found.find(name)
        if path is not None:
            shutil.copy(path, folder / name)
    (folder / CONFIG_FILE).write_text(json.dumps(config), encoding="utf-8")


def _convert(folder: Path, name: str) -> str:
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415 - only where there is something to convert
    except ImportError as error:
        raise ExportError(f"{name} has no tokenizer.json, and to convert its vocabulary: {_NEEDED}") from error
    try:
        loaded = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        text: str = loaded.backend_tokenizer.to_str()
    except ImportError as error:
        raise ExportError(f"to convert the vocabulary of {name}: {_NEEDED}") from error
    except Exception as error:  # each converter raises its own
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise ExportError(f"the tokenizer of {name} cannot be converted: {reason}") from error
    return text


def _config_of(found: TokenizerSource) -> dict[str, Any]:
    """How a vocabulary is read that comes without a configuration."""
    vocabulary = found.find(WORDPIECE_FILE)
    if vocabulary is not None:
        pieces = vocabulary.read_text(encoding="utf-8").splitlines()
        cased = any(piece != piece.lower() for piece in pieces if not piece.startswith("["))
        return {"tokenizer_class": "BertTokenizer", "do_lower_case": not cased}
    if found.find(*SENTENCEPIECE_FILES) or _is_sentencepiece(found.file):
        return dict(SIGLIP2 if _is_byte_pair(found) else SIGLIP)
    raise ExportError(f"{found.name} has no {CONFIG_FILE}, which says what kind of tokenizer it is")


def _is_sentencepiece(path: Path | None) -> bool:
    return path is not None and path.suffix == ".model"


def _is_byte_pair(found: TokenizerSource) -> bool:
    try:
        from sentencepiece import SentencePieceProcessor  # noqa: PLC0415
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined] # noqa: PLC0415
    except ImportError as error:
        raise ExportError(f"to convert the vocabulary of {found.name}: {_NEEDED}") from error
    path = found.find(*SENTENCEPIECE_FILES) or found.file
    try:
        model = SentencePieceProcessor(model_file=str(path))
    except Exception as error:  # sentencepiece raises RuntimeError and OSError with its own source lines
        raise ExportError(f"{path} is not a sentencepiece model") from error
    proto = ModelProto.FromString(model.serialized_model_proto())
    return bool(proto.trainer_spec.model_type == proto.trainer_spec.BPE)
