"""What a blocking client does to the items of collections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from twinlens.client import collection_calls, types
from twinlens.client.calls import Plan
from twinlens.client.collection_types import ShowProgress

R = TypeVar("R")


class CollectionItems(ABC):
    """The part of a `Client` that is about items."""

    def upsert(
        self,
        collection: str,
        items: Iterable[types.NewItem],
        *,
        space_id: str = "",
        progress: ShowProgress | None = None,
    ) -> types.UpsertReport:
        """Stores items, replacing those of the same id. What the report counts as stored survives a crash.

        Items are read and sent a few hundred at a time, so a generator of any length will do. Should a call fail
        half way, what went before is stored; to run it again is safe.

        Args:
            collection: The collection's id.
            items: What to store.
            space_id: The space of the vectors that items bring; needed where any does, and it must be the
                collection's.
            progress: Told after each call how many items were given and dealt with.

        Example:
            >>> report = client.upsert("photos", [NewItem(id="cat.jpg", image="cat.jpg", caption="a cat")])
            >>> report.stored, report.failures
            (1, ())
        """
        return self._run(collection_calls.upsert(collection, items, space_id), progress)

    def get_item(self, collection: str, item: str, *, include_image: bool = False) -> types.Item:
        """Returns one item, on demand with its picture's bytes.

        Args:
            collection: The collection's id.
            item: The item's id.
            include_image: Bring the bytes along.

        Raises:
            TwinlensError: NOT_FOUND if there is none of that id.

        Example:
            >>> client.get_item("photos", "cat.jpg").caption
            'a cat'
        """
        return self._run(collection_calls.get_item(collection, item, include_image=include_image))

    def list_items(
        self,
        collection: str,
        *,
        page_size: int = 1000,
        filter: str = "",  # noqa: A002
    ) -> Iterator[types.Item]:
        """Iterates over all items that match, by id, a page at a time.

        Args:
            collection: The collection's id.
            page_size: How many are asked for at a time.
            filter: Only items that match; empty: all.

        Example:
            >>> sum(1 for _ in client.list_items("photos"))
            4
            >>> [item.id for item in client.list_items("photos", filter='id = "2024/*"')]
            ['2024/cat.jpg']
        """
        return self._pages(lambda token: collection_calls.list_items(collection, token, page_size, filter))

    def count_items(self, collection: str, filter: str = "") -> int:  # noqa: A002
        """Counts the items that match.

        Example:
            >>> client.count_items("photos", "year >= 2020")
            3
        """
        return self._run(collection_calls.count_items(collection, filter))

    def delete_items(self, collection: str, ids: Iterable[str] = (), *, filter: str = "") -> int:  # noqa: A002
        """Deletes items, by id or all that match a filter, and returns how many of them existed.

        Args:
            collection: The collection's id.
            ids: Of which items.
            filter: Instead of ids: which items.

        Example:
            >>> client.delete_items("photos", ["cat.jpg", "never-there.jpg"])
            1
            >>> client.delete_items("photos", filter="year < 2020")
            1
        """
        return self._run(collection_calls.delete_items(collection, ids, filter))

    @abstractmethod
    def _run(self, plan: Plan[R], progress: ShowProgress | None = None) -> R: ...

    @abstractmethod
    def _pages(self, page: Callable[[str], Plan[tuple[list[R], str]]]) -> Iterator[R]: ...
