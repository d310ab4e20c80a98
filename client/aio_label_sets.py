"""What an asynchronous client does with label sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from twinlens.client import label_set_calls
from twinlens.client.calls import Plan
from twinlens.client.label_types import LabelSet, NoneOfThese

R = TypeVar("R")


class AsyncLabelSets(ABC):
    """The part of an `AsyncClient` that is about label sets; see `LabelSets`, method by method."""

    async def put_label_set(
        self,
        label_set: str,
        labels: Iterable[str],
        *,
        templates: Iterable[str] | None = None,
        multi_label: bool = False,
        none_of_these: NoneOfThese | None = None,
    ) -> LabelSet:
        """Keeps labels and how to ask for them under a name; see `Client.put_label_set`.

        Example:
            >>> made = await client.put_label_set("pets", ["cat", "dog"])
            >>> (await client.classify(["cat.jpg"], label_set="pets"))[0].scores[0].label
            'cat'
        """
        return await self._run(
            label_set_calls.put(
                label_set, labels, templates=templates, multi_label=multi_label, none_of_these=none_of_these
            )
        )

    async def get_label_set(self, label_set: str) -> LabelSet:
        """Returns a label set; see `Client.get_label_set`.

        Example:
            >>> (await client.get_label_set("pets")).labels
            ('cat', 'dog')
        """
        return await self._run(label_set_calls.get(label_set))

    async def list_label_sets(self) -> list[LabelSet]:
        """All label sets, by name.

        Example:
            >>> [each.id for each in await client.list_label_sets()]
            ['pets']
        """
        return [each async for each in self._pages(label_set_calls.page)]

    async def delete_label_set(self, label_set: str) -> None:
        """Deletes a label set; see `Client.delete_label_set`.

        Example:
            >>> await client.delete_label_set("pets")
        """
        await self._run(label_set_calls.delete(label_set))

    @abstractmethod
    async def _run(self, plan: Plan[R]) -> R: ...

    @abstractmethod
    def _pages(self, page: Callable[[str], Plan[tuple[list[R], str]]]) -> AsyncIterator[R]: ...
