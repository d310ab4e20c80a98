"""`[data]`: what a dual encoder is trained on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from twinlens.training.sections.frozen import Frozen, NamedPath


class ScenesData(Frozen):
    """Built-in captioned scenes, drawn before training starts.

    Attributes:
        source: `scenes`.
        count: How many.
        seed: Of the drawing.
        start: Number of the first scene.
    """

    source: Literal["scenes"]
    count: int = Field(default=8000, ge=2)
    seed: int = Field(default=0, ge=0)
    start: int = Field(default=0, ge=0)


class CaptionsData(Frozen):
    """A JSONL, CSV or TSV file of pictures and captions.

    Attributes:
        source: `captions`.
        path: The file.
        images: The folder that relative paths of pictures start from; None: the file's own.
        image_column: Of the file.
        caption_column: Of the file.
        id_column: Of the file, what mined negatives name a pair by; None: `id` where there is one, else the path.
        limit: Take the first so many pairs only.
        max_unreadable_share: Stop when more than this share, and more than three pictures, cannot be read; 0: at the
            first of them.
    """

    source: Literal["captions"]
    path: NamedPath
    images: NamedPath | None = None
    image_column: str = "image"
    caption_column: str = "caption"
    id_column: str | None = None
    limit: int | None = Field(default=None, ge=1)
    max_unreadable_share: float = Field(default=0.01, ge=0, le=1)


DataConfig = Annotated[ScenesData | CaptionsData, Field(discriminator="source")]
