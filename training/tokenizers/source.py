"""Finds a Hugging Face tokenizer: a folder, one of its files, or a name on the hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from twinlens.training.export.errors import ExportError
from twinlens.training.hub import hub_snapshot
from twinlens.training.json_object import read_json_object

TOKENIZER_FILE: Final = "tokenizer.json"
CONFIG_FILE: Final = "tokenizer_config.json"
SPECIAL_TOKENS_FILE: Final = "special_tokens_map.json"
SENTENCEPIECE_FILES: Final = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "sentencepiece.model")
WORDPIECE_FILE: Final = "vocab.txt"
BYTE_BPE_FILES: Final = ("vocab.json", "merges.txt")

_SINGLE_FILES = (TOKENIZER_FILE, *SENTENCEPIECE_FILES, WORDPIECE_FILE)
_OTHER_FILES = (
    CONFIG_FILE,
    SPECIAL_TOKENS_FILE,
    *BYTE_BPE_FILES,
    "added_tokens.json",
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
)
_HUB_PREFIX = "hf-hub:"
_INSTEAD = "put its tokenizer.json and tokenizer_config.json into a folder and name that"


@dataclass(frozen=True)
class TokenizerSource:
    """Where a tokenizer's files are.

    Attributes:
        name: For people: the hub's name, or the folder's or file's own.
        folder: Holds the files, where there is a folder of them.
        file: The one file, where only that is known (then nothing else of its folder is read).
        config: The contents of `tokenizer_config.json`, completed from `special_tokens_map.json`.
    """

    name: str
    folder: Path | None
    file: Path | None
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def model_type(self) -> str:
        """What kind of model the folder belongs to, from its `config.json`."""
        return str(self._read("config.json").get("model_type", ""))

    @property
    def sentence_transformers(self) -> dict[str, Any]:
        """The settings of a sentence-transformers folder."""
        return self._read("sentence_bert_config.json")

    def _read(self, name: str) -> dict[str, Any]:
        return {} if self.folder is None else read_json_object(self.folder / name)

    def find(self, *names: str) -> Path | None:
        """The first of these files that is there."""
        if self.file is not None:
            return self.file if self.file.name in names else None
        assert self.folder is not None  # noqa: S101 - one of the two is always set
        return next((self.folder / name for name in names if (self.folder / name).is_file()), None)


def find_source(source: Path | str) -> TokenizerSource:
    """Resolves what a user or a model configuration names.

    Args:
        source: A folder, a `tokenizer.json`, `spiece.model` or `vocab.txt`, or a name on the hub.

    Raises:
        ExportError: if there is nothing of that name, it holds no tokenizer, or the hub cannot be reached.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return _from_folder(path, path.resolve().name)
    if path.is_file():
        if path.name not in _SINGLE_FILES and path.suffix != ".model":
            raise ExportError(f"{path} is not a tokenizer; known are {', '.join(_SINGLE_FILES)} and their folders")
        return TokenizerSource(path.name, None, path)
    name = str(source).removeprefix(_HUB_PREFIX)
    if isinstance(source, Path) or name.startswith((".", "/", "~")) or path.suffix in {".json", ".model", ".txt"}:
        raise ExportError(f"no tokenizer at {path}")
    return _from_folder(_from_hub(name), name)


def token_text(token: object) -> str | None:
    """The spelling of a token as these files write it: a string, or {"content": …}."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _from_folder(folder: Path, name: str) -> TokenizerSource:
    config = {**read_json_object(folder / SPECIAL_TOKENS_FILE), **read_json_object(folder / CONFIG_FILE)}
    found = TokenizerSource(name, folder, None, config)
    if not _is_whole(found):
        raise ExportError(f"{name} holds no tokenizer ({', '.join(_SINGLE_FILES)}, {' with '.join(BYTE_BPE_FILES)})")
    return found


def _is_whole(found: TokenizerSource) -> bool:
    return bool(found.find(*_SINGLE_FILES)) or all(found.find(each) for each in BYTE_BPE_FILES)


def _from_hub(name: str) -> Path:
    try:
        return hub_snapshot(
            name,
            [*_SINGLE_FILES, *_OTHER_FILES],
            _INSTEAD,
            what=f"the tokenizer {name} (no folder here)",
            holds=lambda folder: _is_whole(TokenizerSource(name, folder, None)),
        )
    except ImportError as error:
        raise ExportError(f"no folder {name}; to look for it on the hub: pip install huggingface-hub") from error
