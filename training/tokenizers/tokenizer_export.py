"""What a bundle needs to know of a checkpoint's tokenizer."""

from __future__ import annotations

from dataclasses import dataclass

from twinlens.encoders.manifest import TextSpec


@dataclass(frozen=True)
class TokenizerExport:
    """A tokenizer as serving reads it.

    Attributes:
        json: The text of the Hugging Face `tokenizers` file.
        spec: The clean-up before it, and the cutting and padding after it.
    """

    json: str
    spec: TextSpec
