"""Searches of several calls that ask the same of one collection, joined into one.

While one search of a kind runs, the next ones of that kind gather. A batch costs the index and the database less than
its queries one by one, and Python threads that search side by side spend most of their time handing its lock around.
An idle server searches at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twinlens.index.contract import CollectionLike
from twinlens.index.item import Hit, Modality
from twinlens.server.core.call import Call
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.lanes import Priority
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.telemetry import Telemetry

MAX_QUERIES = 64  # of several calls together; a call of more is a batch by itself

Hits = list[list[Hit]]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How to search; `min_score` is a cosine, a blank `filter` leaves nothing out."""

    modality: Modality
    top_k: int
    min_score: float | None = None
    exact: bool = False
    filter: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    queries: NDArray[np.float32]
    call: Call
    future: asyncio.Future[Hits]


@dataclass(slots=True)
class _Group:
    """What asks the same of one collection."""

    collection: CollectionLike
    options: SearchOptions
    priority: Priority
    entries: deque[_Entry] = field(default_factory=deque)


class JoinedSearch:
    """Asks collections for many calls.

    Args:
        io: Where collections are asked.
        telemetry: Told of seconds and of what was dropped.
        space_id: Of the queries.
        max_characters: Of the items found for one call; see `Collection.search`.
    """

    def __init__(self, io: WorkerPool, telemetry: Telemetry, *, space_id: str, max_characters: int) -> None:
        self._io = io
        self._telemetry = telemetry
        self._space_id = space_id
        self._max_characters = max_characters
        self._groups: dict[tuple[int, SearchOptions, Priority], _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def search(
        self, collection: CollectionLike, queries: NDArray[np.float32], options: SearchOptions, call: Call
    ) -> Hits:
        """Searches for unit vectors, shape (q, d); the same hits whoever else asks meanwhile.

        Raises:
            ServiceError: DEADLINE_EXCEEDED if the deadline passed before the search began.
            CollectionError: as `Collection.search`, for these queries alone.
        """
        # By identity: one that was closed and opened again, or made anew under its name, is another. The group holds
        # it, so its identity is not given to another meanwhile.
        key = (id(collection), options, call.priority)
        entry = _Entry(queries, call, asyncio.get_running_loop().create_future())
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(collection, options, call.priority)
            group.entries.append(entry)
            task = asyncio.create_task(self._work_through(key, group), name="twinlens-search")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            group.entries.append(entry)
        return await entry.future

    async def _work_through(self, key: tuple[int, SearchOptions, Priority], group: _Group) -> None:
        batch: list[_Entry] = []
        try:
            while group.entries:
                batch = self._form(group)
                if batch:
                    await self._answer(batch, group)
        finally:
            del self._groups[key]
            for entry in (*batch, *group.entries):  # none is left, unless the server ends
                entry.future.cancel()

    def _form(self, group: _Group) -> list[_Entry]:
        batch: list[_Entry] = []
        rows = 0
        while group.entries and (not batch or rows + len(group.entries[0].queries) <= MAX_QUERIES):
            entry = group.entries.popleft()
            if entry.future.done():
                self._telemetry.dropped_items.labels("search", "cancelled").inc(len(entry.queries))
            elif entry.call.expired:
                self._telemetry.dropped_items.labels("search", "expired").inc(len(entry.queries))
                entry.future.set_exception(
                    ServiceError(Code.DEADLINE_EXCEEDED, "the deadline passed before the search began")
                )
            else:
                batch.append(entry)
                rows += len(entry.queries)
        return batch

    async def _answer(self, batch: Sequence[_Entry], group: _Group) -> None:
        try:
            hits = await self._ask(batch, group)
        except Exception as error:
            # Too long an answer together, say. But what hung once is not tried again and again.
            if len(batch) > 1 and not isinstance(error, ServiceError):
                for entry in batch:
                    if not entry.future.done():
                        await self._answer([entry], group)
                return
            for entry in batch:
                if not entry.future.done():
                    entry.future.set_exception(error)
            return
        start = 0
        for entry in batch:
            if not entry.future.done():
                entry.future.set_result(hits[start : start + len(entry.queries)])
            start += len(entry.queries)

    async def _ask(self, batch: Sequence[_Entry], group: _Group) -> Hits:
        queries = batch[0].queries if len(batch) == 1 else np.concatenate([entry.queries for entry in batch])
        running = self._io.submit(group.priority, self._search, group, queries, [entry.call for entry in batch])

        def withdraw(_: object) -> None:
            # A comparison with everything ends early when nobody waits for it.
            if all(entry.future.cancelled() for entry in batch):
                running.cancel()

        for entry in batch:
            entry.future.add_done_callback(withdraw)
        try:
            return await running
        except asyncio.CancelledError:
            if all(entry.future.cancelled() for entry in batch):
                return []
            raise

    def _search(self, group: _Group, queries: NDArray[np.float32], calls: Sequence[Call]) -> Hits:
        options = group.options
        began_s = time.monotonic()
        try:
            return group.collection.search(
                queries,
                modality=options.modality,
                top_k=options.top_k,
                space_id=self._space_id,
                min_score=options.min_score,
                max_characters=self._max_characters,
                exact=options.exact,
                filter=options.filter,
            )
        finally:
            ended_s = time.monotonic()
            self._telemetry.search_seconds.observe(ended_s - began_s)
            for call in calls:
                if call.trace is not None:
                    call.trace.add("search", began_s, ended_s, queries=len(queries))
