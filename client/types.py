"""What goes into a client and what comes out: plain values, NumPy arrays where there are vectors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

Modality: TypeAlias = Literal["image", "text"]

# A path, encoded bytes (JPEG, PNG, …), a Pillow picture, pixels of shape (h, w), (h, w, 3) or (h, w, 4), or an address
# that the server fetches from.
ImageInput: TypeAlias = "str | os.PathLike[str] | bytes | Image | NDArray[np.uint8] | ImageUrl"

ExampleRule: TypeAlias = Literal["prototype", "knn"]

# One part, several parts to be mixed, a text, or a vector of shape (d,).
QueryInput: TypeAlias = "Part | Sequence[Part] | str | NDArray[np.floating[Any]]"


@dataclass(frozen=True, slots=True)
class ImageUrl:
    """A picture by its address, which the server fetches, where it is set to fetch from that host.

    Example:
        >>> batch = client.embed_images(["cat.jpg", ImageUrl("https://images.example.com/dog.jpg")])
        >>> batch.errors[1].reason  # this server fetches nothing
        'NOT_FETCHED'
    """

    url: str


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item of a collection, whose vector is wanted.

    Attributes:
        collection: The collection's id.
        id: The item's id.
        modality: Which of its vectors; None: the picture's, or the caption's where there is no picture.

    Example:
        >>> client.embed_items([StoredItem("photos", "cat.jpg")]).vectors.shape
        (1, 384)
    """

    collection: str
    id: str
    modality: Modality | None = None


@dataclass(frozen=True, slots=True)
class ItemError:
    """Why one item of a batch failed; the others are not affected. As text it is its message.

    Attributes:
        reason: The kind of failure, such as "INVALID_IMAGE", "NOT_FOUND", "UNSUPPORTED".
        message: One line a person understands.
    """

    reason: str
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model behind an answer. Vectors are comparable only within one `space_id`."""

    name: str
    version: str
    space_id: str
    dimension: int
    has_image_tower: bool
    has_text_tower: bool


@dataclass(frozen=True, slots=True)
class Model:
    """A model a server has, with its manifest (the content of bundle.json)."""

    info: ModelInfo
    active: bool
    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EmbedBatch:
    """Vectors of a batch, in its order.

    Attributes:
        vectors: Unit-length vectors, float32, shape (n, d); a row of NaN where the input failed.
        errors: Position -> why that input failed.
        truncated: Positions of texts that were longer than the model's context and were cut.
        model: The model; None only for an empty batch.
    """

    vectors: NDArray[np.float32]
    errors: Mapping[int, ItemError]
    truncated: tuple[int, ...]
    model: ModelInfo | None


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a query: exactly one of `text`, `image`, `vector` and `item`.

    Attributes:
        text: A text.
        image: A picture, as `embed_images` takes it.
        vector: A vector of the collection's space, shape (d,); need not have unit length.
        item: The id of an item of the collection.
        weight: Its share; negative pushes away.
        item_modality: Which vector of `item` is meant; None: the picture's, or the caption's where there is no picture.

    Example:
        >>> client.search("photos", parts=[Part(image="dog.png"), Part(text="snow", weight=-0.5)])[0].id
        'dog.jpg'
    """

    text: str | None = None
    image: ImageInput | None = None
    vector: NDArray[np.floating[Any]] | Sequence[float] | None = None
    item: str | None = None
    weight: float = 1.0
    item_modality: Modality | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """An item and its cosine to the query, from -1 to 1."""

    id: str
    score: float
    uri: str = ""
    caption: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Hits of one query, best first; `error` is set and `hits` empty where that query failed."""

    hits: tuple[Hit, ...]
    error: ItemError | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class LabelScore:
    """One label of one picture: raw cosine, and the model's own probability, or that of the examples' rule.

    `truncated` says that a prompt of the label was longer than the model's context and was cut.
    """

    label: str
    cosine: float
    probability: float
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Classification:
    """Labels of one picture, best first; `error` is set and `scores` empty where it failed.

    Attributes:
        scores: The best labels.
        error: Why it failed.
        none_of_these: No label fits, by what was said of that; the scores are told all the same.
        background_cosine: With background prompts: the highest cosine of one of them.
        background_probability: With background prompts that compete with the labels: that of all of them together.
    """

    scores: tuple[LabelScore, ...]
    error: ItemError | None = None
    none_of_these: bool = False
    background_cosine: float | None = None
    background_probability: float | None = None


@dataclass(frozen=True, slots=True)
class Examples:
    """What to label by instead of words: pictures, or stored items, whose labels are known.

    Attributes:
        images: Pictures of each label.
        items: Ids of items of `collection` of each label.
        collection: The collection's id.
        label_key: Every item of the collection with a picture and a label under this key of its metadata is an example.
        rule: "prototype": a picture is compared with the normalised mean of each label's vectors, and a probability is
            softmax(cosine / temperature). "knn": the nearest examples vote with the weight exp(cosine / temperature),
            and a probability is the share of the votes (Wu et al. 2018).
        k: How many examples vote, 1 to 10,000; 0 means 20. For "knn" alone.
        temperature: From 0.001 to 100; None means 0.07.
        text_weight: From 0 to 1: how much of a label's words is mixed into its prototype. For "prototype" alone, with
            models that embed texts.

    Example:
        >>> by_breed = Examples(collection="pets", label_key="breed", rule="knn")
        >>> client.classify(["dog.png"], examples=by_breed)[0].scores[0].label
        'beagle'
    """

    images: Mapping[str, Iterable[ImageInput]] = field(default_factory=dict)
    items: Mapping[str, Iterable[str]] = field(default_factory=dict)
    collection: str = ""
    label_key: str = ""
    rule: ExampleRule = "prototype"
    k: int = 0
    temperature: float | None = None
    text_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class ExampleError:
    """A picture that could not be used as an example.

    Attributes:
        label: Its label.
        position: Its place among that label's pictures, from 0.
        reason: The kind of failure, such as "INVALID_IMAGE".
        message: One line a person understands.
    """

    label: str
    position: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to store. At least one of `image`, `caption` and a vector is needed.

    Attributes:
        image: The picture, as `embed_images` takes it; one of Pillow or of pixels is stored as PNG.
        caption: A text that belongs to it; embedded if the model has a text tower.
        id: Chosen by you; empty means the hash of the content.
        uri: Where the original lies; kept, never fetched.
        metadata: JSON-compatible; numbers are kept as 64-bit floats.
        image_vector: Used instead of embedding `image`, shape (d,), of any length but zero. Where an item brings a
            vector, nothing of it is embedded; without picture and caption it needs an id.
        text_vector: The same for `caption`.
    """

    image: ImageInput | None = None
    caption: str = ""
    id: str = ""
    uri: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    image_vector: NDArray[np.floating[Any]] | Sequence[float] | None = None
    text_vector: NDArray[np.floating[Any]] | Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """A stored item.

    Attributes:
        image: The picture's bytes as they were stored; None unless asked for (or where there is none).
        content_hash: SHA-256 of the picture's bytes, or of the caption where there is no picture; hexadecimal.
    """

    id: str
    uri: str
    caption: str
    metadata: Mapping[str, Any]
    content_hash: str
    create_time: datetime
    update_time: datetime
    image: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class UpsertFailure:
    """An item that was not stored.

    Attributes:
        position: Its place among the items given, from 0.
        id: Its id as given, possibly empty.
        reason: The kind of failure, such as "INVALID_IMAGE".
        message: One line a person understands.
    """

    position: int
    id: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class UpsertReport:
    """What became of the items given.

    Attributes:
        stored: How many are on disk.
        failures: Those that are not, in order.
        truncated: How many captions were cut for embedding.
        model: The model that embedded them; None only if nothing could be sent.
    """

    stored: int
    failures: tuple[UpsertFailure, ...]
    truncated: int = 0
    model: ModelInfo | None = None
