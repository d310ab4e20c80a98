"""`[data]`: what a dual encoder is trained on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from twinlens.training.sections.frozen import Frozen, NamedPath

Balance = Literal["none", "class"] | Annotated[float, Field(ge=0, le=1)]


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


class _ManyPairs(Frozen):
    """What all sources but scenes have.

    Attributes:
        captions_per_picture: `all`: each caption is a pair of its own, and an epoch shows all; `one`: each picture is a
            pair, and an epoch shows it with one of its captions, the next with another.
        balance: `none` takes pairs as they come, `class` each class equally often (a class is what has one label, or
            without labels one caption); a number in between is the power by which large ones are seen less.
        limit: Take the first so many pairs only.
        max_unreadable_share: Stop when more than this share, and more than three pictures, cannot be read; 0: at the
            first of them.
    """

    captions_per_picture: Literal["all", "one"] = "all"
    balance: Balance = "none"
    limit: int | None = Field(default=None, ge=1)
    max_unreadable_share: float = Field(default=0.01, ge=0, le=1)


class CaptionsData(_ManyPairs):
    """A JSONL, CSV, TSV or Parquet file of pictures and captions.

    Attributes:
        source: `captions`.
        path: The file.
        images: The folder that relative paths of pictures start from; None: the file's own.
        image_column: Of the file.
        caption_column: Of the file.
        id_column: Of the file, what mined negatives name a pair by; None: `id` where there is one, else the path.
        wrong_caption_column: Of the file, captions that are false of the picture, for `[hard_negatives]`; None: none.
        weight_column: Of the file, how much a pair counts in the loss; None: all alike.
    """

    source: Literal["captions"]
    path: NamedPath
    images: NamedPath | None = None
    image_column: str = "image"
    caption_column: str = "caption"
    id_column: str | None = None
    wrong_caption_column: str | None = None
    weight_column: str | None = None


DataConfig = Annotated[ScenesData | CaptionsData, Field(discriminator="source")]


def balance_power(data: DataConfig) -> float:
    """What `balance` says as a power: 0 takes classes as they come, 1 equally often."""
    balance = "none" if isinstance(data, ScenesData) else data.balance
    return {"none": 0.0, "class": 1.0}[balance] if isinstance(balance, str) else balance
