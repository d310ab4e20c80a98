"""Label sets: labels and how to ask for them, kept under a name and embedded once an encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from twinlens.server.core.call import Call
from twinlens.server.core.classify import Classifier, Words
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.label_set_files import LabelSet, LabelSetFiles, check_label_set_id
from twinlens.server.core.pool import WorkerPool


@dataclass(frozen=True, slots=True)
class LabelSetPage:
    """Some of the label sets, by id; `next_after`: behind which id there are more, empty where there are none."""

    label_sets: list[LabelSet]
    next_after: str = ""


class LabelSets:
    """Keeps label sets.

    Args:
        classifier: Embeds labels, and knows which can be meant.
        io: Where files are read and written.
        folder: Where they are kept; None: nowhere, then none can be.
    """

    def __init__(self, classifier: Classifier, io: WorkerPool, folder: Path | None) -> None:
        self._classifier = classifier
        self._io = io
        self._files = None if folder is None else LabelSetFiles(folder)

    async def put(self, given: LabelSet, call: Call) -> LabelSet:
        """Keeps a label set, its labels embedded, in place of one of the same id; it is on disk when this returns.

        Returns:
            The label set with its times.

        Raises:
            ServiceError: INVALID_ARGUMENT for labels that cannot be meant or embedded, FAILED_PRECONDITION for a model
                without a text tower, INTERNAL where it cannot be written.
        """
        files = self._place()
        check_label_set_id(given.id)
        vectors = await self._classifier.embed_words(_words(given, files), call)
        return await self._io.submit(call.priority, files.write, given, vectors)

    async def get(self, label_set_id: str, call: Call) -> LabelSet:
        """A label set.

        Raises:
            ServiceError: NOT_FOUND if there is none, DATA_LOSS if its file cannot be understood.
        """
        files = self._place()
        held = files.held(label_set_id)
        return held if held is not None else await self._io.submit(call.priority, files.read, label_set_id)

    async def words(self, label_set_id: str, call: Call) -> Words:
        """What a label set says to choose from.

        Raises:
            ServiceError: as `get`.
        """
        return _words(await self.get(label_set_id, call), self._place())

    async def page(self, after: str, size: int, fits: Callable[[LabelSet], bool], call: Call) -> LabelSetPage:
        """The label sets behind an id.

        Args:
            after: The id; empty: from the first.
            size: At most so many.
            fits: Asked of each but the first: whether the page has room for it, too.
            call: The call this is for.
        """
        return await self._io.submit(call.priority, self._page, after, size, fits)

    async def delete(self, label_set_id: str, call: Call) -> None:
        """Removes a label set.

        Raises:
            ServiceError: NOT_FOUND if there is none.
        """
        await self._io.submit(call.priority, self._place().delete, label_set_id)

    def _page(self, after: str, size: int, fits: Callable[[LabelSet], bool]) -> LabelSetPage:
        files = self._place()
        ids = files.ids(after)
        page: list[LabelSet] = []
        for label_set_id in ids[:size]:
            try:
                found = files.read(label_set_id)
            except ServiceError:  # deleted meanwhile, or damaged: the log names it, and so does `get`
                continue
            if not fits(found) and page:
                return LabelSetPage(page, page[-1].id)
            page.append(found)
        return LabelSetPage(page, ids[size - 1] if len(ids) > size else "")

    def _place(self) -> LabelSetFiles:
        if self._files is None:
            raise ServiceError(Code.FAILED_PRECONDITION, "this server has no data folder to keep label sets in")
        return self._files


def _words(label_set: LabelSet, files: LabelSetFiles) -> Words:
    return Words(
        labels=label_set.labels,
        templates=label_set.templates,
        multi_label=label_set.multi_label,
        none=label_set.none,
        kept=files.vectors(label_set.id),
    )
