"""What an asynchronous client does to the items of collections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from twinlens.client import collection_calls, types
from twinlens.client.calls import Plan
from twinlens.client.collection_types import ShowProgress

R = TypeVar("R")


class AsyncCollectionItems(ABC):
    """The part of an `AsyncClient` that is about items; see `CollectionItems`, method by method."""

    async def upsert(
        self,
        collection: str,
        items: Iterable[types.NewItem],
        *,
        space_id: str = "",
        progress: ShowProgress | None = None,
    ) -> types.UpsertReport:
        """Stores items; see `Client.upsert`. The iterable is advanced in a thread.

        Example:
            >>> (await client.upsert("photos", [NewItem(id="cat.jpg", image="cat.jpg", caption="a cat")])).stored
            1
        """
        return await self._run(collection_calls.upsert(collection, items, space_id), progress)

    async def get_item(self, collection: str, item: str, *, include_image: bool = False) -> types.Item:
        """Returns one item; see `Client.get_item`.

        Example:
            >>> (await client.get_item("photos", "cat.jpg")).caption
            'a cat'
        """
        return await self._run(collection_calls.get_item(collection, item, include_image=include_image))

    def list_items(
        self,
        collection: str,
        *,
        page_size: int = 1000,
        filter: str = "",  # noqa: A002
    ) -> AsyncIterator[types.Item]:
        """Iterates over all items that match, by id, a page at a time.

        Example:
            >>> [item.id async for item in client.list_items("photos", filter="year >= 2021")]
            ['2024/cat.jpg', 'dog.jpg']
        """
        return self._pages(lambda token: collection_calls.list_items(collection, token, page_size, filter))

    async def count_items(self, collection: str, filter: str = "") -> int:  # noqa: A002
        """Counts the items that match; see `Client.count_items`.

        Example:
            >>> await client.count_items("photos", "year >= 2020")
            3
        """
        return await self._run(collection_calls.count_items(collection, filter))

    async def delete_items(self, collection: str, ids: Iterable[str] = (), *, filter: str = "") -> int:  # noqa: A002
        """Deletes items, by id or all that match a filter, and returns how many of them existed.

        Example:
            >>> await client.delete_items("photos", ["cat.jpg", "never-there.jpg"])
            1
        """
        return await self._run(collection_calls.delete_items(collection, ids, filter))

    @abstractmethod
    async def _run(self, plan: Plan[R], progress: ShowProgress | None = None) -> R: ...

    @abstractmethod
    def _pages(self, page: Callable[[str], Plan[tuple[list[R], str]]]) -> AsyncIterator[R]: ...
