"""The items of a collection, as rows in Milvus."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twinlens.index.errors import CorruptCollection
from twinlens.index.item import Item
from twinlens.index.milvus.connection import CALL_S, MilvusConnection
from twinlens.index.milvus.tables import TEXT_BYTES, create_table
from twinlens.index.milvus.vectors import expressions, milvus_types, pages_by_key
from twinlens.index.prepare import PreparedItem

_ROWS = 200  # with their longest texts still below the size of a message
_MOST_ROWS = 8_000  # where they are short
_FIELDS = [
    *("pk", "key", "previous", "uri", "caption", "caption_end", "metadata", "metadata_end"),
    *("content_hash", "has_image", "created_s", "updated_s"),
]


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as Milvus has it.

    Attributes:
        key: Under which its vectors and its picture lie: another one each time it is replaced.
        previous: The key it had before the last replacement; below 0 where there was none.
        item: What callers see of it.
    """

    key: int
    previous: int
    item: Item


class MilvusItems:
    """Rows by the hexadecimal UTF-8 of the item's id, which sorts as the id does and needs no escaping."""

    def __init__(self, connection: MilvusConnection, client: Any, name: str, what: str) -> None:
        """Names a table that is there or that `create` will make.

        Args:
            connection: Where the client comes from.
            client: An open one.
            name: Of the Milvus collection.
            what: What to call the collection in errors.
        """
        self._connection = connection
        self._client = client
        self._name = name
        self._what = what

    def create(self) -> None:
        """Makes the table."""
        types = milvus_types()
        texts = ("uri", "caption", "caption_end", "metadata", "metadata_end", "content_hash")
        create_table(
            self._connection,
            self._client,
            self._name,
            {
                "pk": (types.VARCHAR, TEXT_BYTES),
                "key": (types.INT64, 0),
                "previous": (types.INT64, 0),
                **dict.fromkeys(texts, (types.VARCHAR, TEXT_BYTES)),
                "has_image": (types.BOOL, 0),
                "created_s": (types.DOUBLE, 0),
                "updated_s": (types.DOUBLE, 0),
            },
            indexed=("key", "previous"),
        )

    def put(self, items: Mapping[int, PreparedItem], replaced: Mapping[str, StoredItem], now_s: float) -> None:
        """Stores items by key, in place of those of their ids."""
        rows = [_row(key, item, replaced.get(item.id), now_s) for key, item in items.items()]
        with self._connection.clear_errors():
            for start in range(0, len(rows), _ROWS):
                self._client.upsert(self._name, rows[start : start + _ROWS], timeout=CALL_S)

    def delete(self, found: Collection[StoredItem]) -> None:
        """Removes items, but not what replaced them since they were found."""
        pairs = zip(
            expressions([_pk(stored.item.id) for stored in found], field="pk"),
            expressions([stored.key for stored in found]),
            strict=True,
        )
        with self._connection.clear_errors():
            for of_id, of_key in pairs:
                self._client.delete(self._name, filter=f"{of_id} and {of_key}", timeout=CALL_S)

    def by_id(self, ids: Collection[str]) -> dict[str, StoredItem]:
        """Those that exist."""
        found = self._where(expressions([_pk(item_id) for item_id in ids], _ROWS, field="pk"))
        return {stored.item.id: stored for stored in found}

    def by_key(self, keys: Collection[int], *, or_previous: bool = False) -> Iterator[StoredItem]:
        """Those that have one of these keys, or had it before the last replacement."""
        among = expressions(list(keys), _ROWS)
        if or_previous:
            pairs = zip(among, expressions(list(keys), _ROWS, field="previous"), strict=True)
            return self._where(f"{now} or {before}" for now, before in pairs)
        return self._where(among)

    def page(self, after: str, limit: int) -> list[StoredItem]:
        """In the order of their ids, from the one behind `after`; fewer than `limit` at the end only."""
        found: list[StoredItem] = []
        for some in self.all(after, page=min(limit, _ROWS)):
            found += some
            if len(found) >= limit:
                break
        return found[:limit]

    def all(self, after: str = "", *, page: int = _ROWS) -> Iterator[list[StoredItem]]:
        """Those behind an id, by default all of them, in the order of their ids, some at a time."""
        pages = pages_by_key(
            self._connection,
            self._client,
            self._name,
            'pk >= ""',
            _FIELDS,
            page=page,
            most=_MOST_ROWS if page == _ROWS else 0,
            key="pk",
            after=_pk(after) if after else None,
        )
        for rows in pages:
            yield [self._stored(row) for row in rows]

    def count(self) -> int:
        """How many there are."""
        with self._connection.clear_errors():
            rows = self._client.query(
                self._name, filter="", output_fields=["count(*)"], consistency_level="Strong", timeout=CALL_S
            )
        return int(rows[0]["count(*)"])

    def prepare(self, ids: Collection[str]) -> tuple[dict[str, StoredItem], list[int]]:
        """Those of these ids that exist, and for each id a key that no item has.

        Servers draw keys at random, so that they need not ask each other.
        """
        wanted = list(ids)
        while True:
            keys = [secrets.randbits(62) for _ in wanted]
            pairs = zip(
                expressions([_pk(item_id) for item_id in wanted], _ROWS, field="pk"),
                expressions(keys, _ROWS),
                strict=True,
            )
            found = {stored.item.id: stored for stored in self._where(f"{of_id} or {key}" for of_id, key in pairs)}
            if len(set(keys)) == len(keys) and not {stored.key for stored in found.values()} & set(keys):
                return found, keys

    def _where(self, among: Iterator[str]) -> Iterator[StoredItem]:
        for expression in among:
            with self._connection.clear_errors():
                rows = self._client.query(
                    self._name,
                    filter=expression,
                    output_fields=_FIELDS,
                    consistency_level="Strong",
                    timeout=CALL_S,
                )
            for row in rows:
                yield self._stored(row)

    def _stored(self, row: Any) -> StoredItem:
        try:
            item_id = bytes.fromhex(row["pk"]).decode()
            metadata = json.loads(row["metadata"] + row["metadata_end"])
        except ValueError as error:
            raise CorruptCollection(f"{self._what}: the row of an item in Milvus is damaged") from error
        item = Item(
            id=item_id,
            uri=row["uri"],
            caption=row["caption"] + row["caption_end"],
            metadata=metadata,
            content_hash=row["content_hash"],
            has_image=row["has_image"],
            created_s=row["created_s"],
            updated_s=row["updated_s"],
        )
        return StoredItem(int(row["key"]), int(row["previous"]), item)


def _pk(item_id: str) -> str:
    return item_id.encode("utf-8", "surrogatepass").hex()


def _row(key: int, item: PreparedItem, replaced: StoredItem | None, now_s: float) -> dict[str, Any]:
    caption, caption_end = _cut(item.caption)
    metadata, metadata_end = _cut(item.metadata)
    return {
        "pk": _pk(item.id),
        "key": key,
        "previous": -1 if replaced is None else replaced.key,
        "uri": item.uri,
        "caption": caption,
        "caption_end": caption_end,
        "metadata": metadata,
        "metadata_end": metadata_end,
        "content_hash": item.content_hash,
        "has_image": item.image is not None,
        "created_s": now_s if replaced is None else replaced.item.created_s,
        "updated_s": now_s,
        "vector": [0.0, 1.0],
    }


def _cut(text: str) -> tuple[str, str]:
    """In two where it is longer than Milvus takes: ours may have 64 KiB, which is one byte more than it allows."""
    data = text.encode()
    if len(data) <= TEXT_BYTES:
        return text, ""
    head = data[: TEXT_BYTES // 2].decode(errors="ignore")
    return head, text[len(head) :]
