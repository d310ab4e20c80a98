"""Originals of a collection that servers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twinlens.index.blobs import content_hash
from twinlens.index.errors import CorruptCollection
from twinlens.index.milvus.items import StoredItem
from twinlens.index.operations.backup_place import BackupPlace


class SharedPictures:
    """Files in a folder or an object store, by the hash of their content and the key of the item they belong to.

    No two items share a file, so no server has to know what others write when it removes one.
    """

    def __init__(self, place: BackupPlace, collection_id: str, what: str) -> None:
        """Names the folder; nothing is made.

        Args:
            place: Where all collections keep theirs.
            collection_id: Whose they are.
            what: What to call the collection in errors.
        """
        self._place = place
        self._folder = collection_id
        self._what = what

    def put(self, pictures: Mapping[tuple[str, int], bytes]) -> None:
        """Stores pictures by hash and key.

        Raises:
            CollectionError: they cannot be written.
        """
        if pictures:
            self._place.write_all({self._path(*named): data for named, data in pictures.items()})

    def read(self, stored: StoredItem) -> bytes | None:
        """The picture of an item; None where it is gone, as when the item was replaced meanwhile.

        Raises:
            CorruptCollection: the content is not what was stored.
            CollectionError: it cannot be read.
        """
        digest = stored.item.content_hash
        data = self._place.read(self._path(digest, stored.key))
        if data is not None and content_hash(data) != digest:
            raise CorruptCollection(f"{self._what}: the stored picture {digest} is damaged")
        return data

    def remove(self, items: Iterable[tuple[str, int]]) -> None:
        """Removes the pictures of these hashes and keys."""
        self._place.remove_all([self._path(*named) for named in items])

    def remove_everything(self) -> None:
        """Removes all that the collection has."""
        self._place.remove_tree(self._folder)

    def _path(self, digest: str, key: int) -> str:
        return f"{self._folder}/{digest[:2]}/{digest}.{key}"
