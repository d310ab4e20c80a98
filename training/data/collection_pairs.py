"""Pairs out of a live collection: items with a caption, and their pictures as they are stored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from twinlens.client.client import Client
from twinlens.client.errors import TwinlensError
from twinlens.client.types import Item
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pairs import CaptionedPicture, ListedPairs, pair_each


@dataclass(frozen=True, slots=True)
class StoredPicture:
    """A picture that a server keeps.

    Attributes:
        name: The item's id.
        collection: Where it is.
        client: Of the server.
    """

    name: str
    collection: str
    client: Client = field(compare=False, repr=False)

    def read(self) -> bytes:
        """The picture's bytes.

        Raises:
            OSError: if the item is gone, or has no picture.
            DataError: if the server does not answer.
        """
        try:
            image = self.client.get_item(self.collection, self.name, include_image=True).image
        except TwinlensError as error:
            if error.code == "NOT_FOUND":
                raise FileNotFoundError(2, "is gone from the collection") from None
            raise DataError(f"{self.collection} at {self.client.target} cannot be read: {error}") from None
        if image is None:
            raise FileNotFoundError(2, "has no picture, or it was not kept")
        return image


def list_collection(client: Client, collection: str, *, label_key: str | None = None) -> ListedPairs:
    """Every item with a caption and a picture is a pair; ids are those of the items, so that what was mined there fits.

    Args:
        client: Of the server; pictures are read through it, so it must stay open until they are.
        collection: Its id.
        label_key: Of the metadata: the class of an item; None: none.

    Raises:
        DataError: if there is no such collection, the server does not answer, or no item has both.
    """
    try:
        items = [item for item in client.list_items(collection) if item.caption.strip() and not _text_only(item)]
    except TwinlensError as error:
        raise DataError(f"the collection {collection!r} at {client.target} cannot be read: {error}") from None
    if not items:
        raise DataError(f"no item of the collection {collection!r} has a caption and a picture")
    items.sort(key=lambda item: item.id)  # whatever order the server lists them in
    pictures = [StoredPicture(item.id, collection, client) for item in items]
    pairs = pair_each(
        [
            CaptionedPicture(item.id, picture, item.caption, label=_label(item, label_key))
            for item, picture in zip(items, pictures, strict=True)
        ]
    )
    if label_key is not None and pairs.classes is None:
        raise DataError(f"no item of the collection {collection!r} has {label_key!r} in its metadata")
    return pairs


def _text_only(item: Item) -> bool:
    return item.content_hash == hashlib.sha256(item.caption.encode()).hexdigest()


def _label(item: Item, key: str | None) -> str | None:
    value = None if key is None else item.metadata.get(key)
    return None if value is None or value == "" else str(value)
