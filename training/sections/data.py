"""`[data]`: what a dual encoder is trained on."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from twinlens.training.sections.frozen import Frozen, NamedPath

CaptionsPerPicture = Literal["all", "one"]
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


class _ReadPairs(Frozen):
    """What all sources but scenes have.

    Attributes:
        balance: `none` takes pairs as they come, `class` each class equally often (a class is what has one label, or
            without labels one caption); a number in between is the power by which large ones are seen less.
        limit: Take the first so many pairs only.
        max_unreadable_share: Stop when more than this share, and more than three pictures, cannot be read; 0: at the
            first of them.
    """

    balance: Balance = "none"
    limit: int | None = Field(default=None, ge=1)
    max_unreadable_share: float = Field(default=0.01, ge=0, le=1)


class CaptionsData(_ReadPairs):
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
        label_column: Of the file, the class of a picture, for `balance`; None: equal captions are a class.
        captions_per_picture: `all`: each caption is a pair of its own, and an epoch shows all; `one`: each picture is a
            pair, and an epoch shows it with one of its captions, the next with another.
    """

    source: Literal["captions"]
    path: NamedPath
    images: NamedPath | None = None
    image_column: str = "image"
    caption_column: str = "caption"
    id_column: str | None = None
    wrong_caption_column: str | None = None
    weight_column: str | None = None
    label_column: str | None = None
    captions_per_picture: CaptionsPerPicture = "all"


class FolderData(_ReadPairs):
    """Labelled pictures; captions are made of the names of their classes, another template each epoch.

    Attributes:
        source: `folder`.
        path: A folder with a folder per class; a list (`.jsonl`, `.csv`, `.tsv`, `.parquet`) with labels; shards
            (`.tar`) with classes.
        images: The folder that relative paths of a list start from; None: the list's own.
        image_column: Of a list.
        label_column: Of a list.
        templates: Captions with `{}` for the name of the class, or the name of a set of them (`photo`, `plain`,
            `simple`: 7, `openai`: 80).
    """

    source: Literal["folder"]
    path: NamedPath
    images: NamedPath | None = None
    image_column: str = "image"
    label_column: str = "label"
    templates: str | tuple[str, ...] = "photo"


class ShardsData(_ReadPairs):
    """Webdataset shards: a picture and its captions have one name in a tar file (`7.jpg`, `7.txt` or `7.json`).

    Attributes:
        source: `shards`.
        path: A shard, a folder of shards, a pattern (`train-*.tar`), or an address (`https://…`, `s3://…`); lists in
            braces stand for each of their numbers or values (`train-{0000..0012}.tar`). In an address `${NAME}` stands
            for that variable of the environment: a key is better put there, for config.json holds the path as it is
            written here.
        caption_field: Of the `.json`; None: the `.txt`, or where there is none the field `caption` of the `.json`.
        wrong_caption_field: Of the `.json`, captions that are false of the picture, for `[hard_negatives]`; None: none.
        weight_field: Of the `.json`, how much a pair counts in the loss; None: all alike.
        captions_per_picture: `all`: each caption is a pair of its own, and an epoch shows all; `one`: each picture is a
            pair, and an epoch shows it with one of its captions, the next with another.
        streaming: Read the shards again each epoch, while training, in place of decoding all pictures before: for more
            pictures than the disk can hold decoded. Takes no mined negatives and no `balance`, and a picture is shown
            with one of its captions.
        shuffle_buffer: So many pictures wait, and the next one is drawn from among them; 0: they come as they lie. With
            `streaming`.
    """

    source: Literal["shards"]
    path: str = Field(min_length=1)
    caption_field: str | None = None
    wrong_caption_field: str | None = None
    weight_field: str | None = None
    captions_per_picture: CaptionsPerPicture = "all"
    streaming: bool = False
    shuffle_buffer: int = Field(default=2000, ge=0)

    @model_validator(mode="after")
    def _streams(self) -> Self:
        if self.streaming:
            unset = {"balance": "none", "limit": None, "wrong_caption_field": None}
            for key, value in unset.items():
                if getattr(self, key) != value:
                    raise ValueError(f"{key} needs all pairs in sight; leave it out, or set streaming = false")
        return self


class CollectionData(_ReadPairs):
    """A live collection of a server: its items with a caption and a picture.

    Attributes:
        source: `collection`.
        name: The collection's id.
        server: HOST:PORT; None: what the variable TWINLENS_SERVER says.
        label_key: Of the items' metadata: their classes, for `balance`; None: equal captions are a class.
    """

    source: Literal["collection"]
    name: str = Field(min_length=1)
    server: str | None = None
    label_key: str | None = None


DataConfig = Annotated[
    ScenesData | CaptionsData | FolderData | ShardsData | CollectionData, Field(discriminator="source")
]
SOURCES = ("scenes", "captions", "folder", "shards", "collection")


def balance_power(data: DataConfig) -> float:
    """What `balance` says as a power: 0 takes classes as they come, 1 equally often."""
    balance = "none" if isinstance(data, ScenesData) else data.balance
    return {"none": 0.0, "class": 1.0}[balance] if isinstance(balance, str) else balance
