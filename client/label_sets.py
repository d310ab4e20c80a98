"""What a blocking client does with label sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from twinlens.client import label_set_calls
from twinlens.client.calls import Plan
from twinlens.client.label_types import LabelSet, NoneOfThese

R = TypeVar("R")


class LabelSets(ABC):
    """The part of a `Client` that is about label sets."""

    def put_label_set(
        self,
        label_set: str,
        labels: Iterable[str],
        *,
        templates: Iterable[str] | None = None,
        multi_label: bool = False,
        none_of_these: NoneOfThese | None = None,
    ) -> LabelSet:
        """Keeps labels and how to ask for them under a name, for `classify`; replaces a label set of that name.

        They are embedded now, and are on the server's disk when this returns.

        Args:
            label_set: Its name: 1 to 64 of a-z, 0-9, "-" and "_", starting with a letter or digit.
            labels: 1 to 10,000 distinct labels.
            templates: Prompts around a label, the first "{}" stands for it; default: "a photo of a {}.".
            multi_label: Judge each label on its own instead of against the others.
            none_of_these: When no label fits.

        Example:
            >>> made = client.put_label_set("pets", ["cat", "dog"], none_of_these=NoneOfThese(min_cosine=0.2))
            >>> client.classify(["cat.jpg"], label_set="pets")[0].scores[0].label
            'cat'
        """
        return self._run(
            label_set_calls.put(
                label_set, labels, templates=templates, multi_label=multi_label, none_of_these=none_of_these
            )
        )

    def get_label_set(self, label_set: str) -> LabelSet:
        """Returns a label set.

        Raises:
            TwinlensError: NOT_FOUND if there is none of that name.

        Example:
            >>> client.get_label_set("pets").labels
            ('cat', 'dog')
        """
        return self._run(label_set_calls.get(label_set))

    def list_label_sets(self) -> list[LabelSet]:
        """All label sets, by name.

        Example:
            >>> [each.id for each in client.list_label_sets()]
            ['pets']
        """
        return list(self._pages(label_set_calls.page))

    def delete_label_set(self, label_set: str) -> None:
        """Deletes a label set.

        Raises:
            TwinlensError: NOT_FOUND if there is none of that name.

        Example:
            >>> client.delete_label_set("pets")
        """
        self._run(label_set_calls.delete(label_set))

    @abstractmethod
    def _run(self, plan: Plan[R]) -> R: ...

    @abstractmethod
    def _pages(self, page: Callable[[str], Plan[tuple[list[R], str]]]) -> Iterator[R]: ...
