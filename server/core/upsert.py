"""Storing a stream of items: decode and embed at bulk priority, then one durable transaction a group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from twinlens.index.contract import CollectionLike
from twinlens.index.errors import InvalidArgument, InvalidVector
from twinlens.index.item import Modality, NewItem
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Input, Picture, Text, UnitVector
from twinlens.server.core.errors import (
    Code,
    ItemFailure,
    Reason,
    ServiceError,
    as_item_failure,
)
from twinlens.server.core.fetch import Fetcher
from twinlens.server.core.fetch_ahead import fetch_ahead
from twinlens.server.core.incoming import Incoming, fault_of, in_groups
from twinlens.server.core.lanes import Priority
from twinlens.server.core.lookup import unit_vector
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.towers import no_tower
from twinlens.server.core.upsert_report import UpsertReport

# Groups in work over all streams: what bounds the memory of bulk writing.
_GROUPS_AT_ONCE = 4
_GROUPS_A_STREAM = 2


class Upserter:
    """Embeds and stores items.

    Args:
        engine: Embeds.
        io: Where groups are written.
        fetcher: Fetches pictures that are named by their address.
        max_failure_bytes: What the failures of a stream may take.
        writers: How many of its threads may write at a time: writes wait for the disk and for each other, and searches
            that need a thread should not wait for them.
    """

    def __init__(
        self, engine: Engine, io: WorkerPool, fetcher: Fetcher, *, max_failure_bytes: int, writers: int
    ) -> None:
        self._engine = engine
        self._io = io
        self._fetcher = fetcher
        self._max_failure_bytes = max_failure_bytes
        self._slots = asyncio.Semaphore(_GROUPS_AT_ONCE)
        self._writers = asyncio.Semaphore(writers)

    def check_space(self, space_id: str) -> None:
        """Refuses vectors of another space than the encoder's.

        Raises:
            ServiceError: FAILED_PRECONDITION naming both.
        """
        ours = self._engine.manifest.space_id
        if space_id != ours:
            raise ServiceError(
                Code.FAILED_PRECONDITION,
                f"the items bring vectors of space {space_id}, but the collections of this server hold vectors of "
                f"space {ours}: they cannot be compared",
            )

    async def upsert(self, collection: CollectionLike, items: AsyncIterator[Incoming], call: Call) -> UpsertReport:
        """Stores a stream of items; of two items of one id the later one stays.

        A group is embedded and written whether or not the caller goes on: a stream that stalls takes no room from
        others. The next group is embedded while the one before it is embedded or written.

        Raises:
            ServiceError: INVALID_ARGUMENT where more items fail than a reply can tell.
        """
        bulk = replace(call, priority=Priority.BULK)
        report = UpsertReport(self._max_failure_bytes)
        running: deque[asyncio.Task[None]] = deque()
        last: asyncio.Task[None] | None = None
        try:
            async with (
                aclosing(fetch_ahead(items, self._fetcher, bulk)) as whole,
                aclosing(in_groups(whole)) as groups,
            ):
                async for group in groups:
                    if len(running) == _GROUPS_A_STREAM:
                        await running.popleft()
                    await self._slots.acquire()
                    last = asyncio.create_task(self._work(collection, group, last, report, bulk))
                    last.add_done_callback(lambda _: self._slots.release())
                    running.append(last)
            while running:
                await running.popleft()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        report.failures.sort(key=lambda failure: failure.position)
        return report

    async def _work(
        self,
        collection: CollectionLike,
        group: Sequence[Incoming],
        before: asyncio.Task[None] | None,
        report: UpsertReport,
        call: Call,
    ) -> None:
        ready = await self._embed(group, report, call)
        if before is not None:
            await before  # written in order, so that the later of equal ids stays
        await self._write(collection, ready, report, call)

    async def _embed(
        self, group: Sequence[Incoming], report: UpsertReport, call: Call
    ) -> list[tuple[Incoming, NewItem]]:
        inputs: list[Input] = []
        owners: list[tuple[Incoming, Modality]] = []
        good: list[Incoming] = []
        vectors: dict[int, dict[Modality, UnitVector]] = {}
        for item in group:
            fault = item.fault or fault_of(item) or self._useless(item)
            if fault is not None:
                report.fail(item, fault)
                continue
            good.append(item)
            if item.vectors:
                vectors[item.position] = dict(item.vectors)
                continue
            if item.image and self._engine.has_image_tower:
                inputs.append(Picture(item.image))
                owners.append((item, Modality.IMAGE))
            if item.caption and self._engine.has_text_tower:
                inputs.append(Text(item.caption))
                owners.append((item, Modality.TEXT))
        failures: dict[int, ItemFailure] = {}
        truncated: set[int] = set()
        outcomes = await self._engine.embed(inputs, call)
        for (item, modality), outcome in zip(owners, outcomes, strict=True):
            if outcome.failure is not None:
                failures.setdefault(item.position, outcome.failure)
            elif outcome.vector is not None:
                vectors.setdefault(item.position, {})[modality] = outcome.vector
                if outcome.truncated:
                    truncated.add(item.position)
        ready: list[tuple[Incoming, NewItem]] = []
        for item in good:
            if (failure := failures.get(item.position)) is not None:
                report.fail(item, failure)
                continue
            report.truncated += item.position in truncated
            new = NewItem(
                id=item.id,
                vectors=vectors[item.position],
                image=item.image or None,
                caption=item.caption,
                uri=item.uri,
                metadata=item.metadata,
            )
            ready.append((item, new))
        return ready

    def _useless(self, item: Incoming) -> ItemFailure | None:
        """Why an item could never be found."""
        if item.vectors:
            outcomes = (unit_vector(vector, self._engine.dimension) for vector in item.vectors.values())
            return next((outcome.failure for outcome in outcomes if outcome.failure is not None), None)
        if (item.image and self._engine.has_image_tower) or (item.caption and self._engine.has_text_tower):
            return None
        missing = Modality.IMAGE if item.image else Modality.TEXT
        alone, other = ("picture", "a caption") if item.image else ("caption", "a picture")
        so = f"an item of a {alone} alone could never be found"
        return ItemFailure(Reason.UNSUPPORTED, no_tower(self._engine.manifest, missing, so, f"give it {other}"))

    async def _write(
        self, collection: CollectionLike, ready: Sequence[tuple[Incoming, NewItem]], report: UpsertReport, call: Call
    ) -> None:
        if not ready:
            return
        try:
            await self._store(collection, [new for _, new in ready], call)
        except (InvalidArgument, InvalidVector):
            # One item broke the transaction: each gets one of its own, in order, so the later of equal ids still wins.
            for item, new in ready:
                try:
                    await self._store(collection, [new], call)
                except (InvalidArgument, InvalidVector) as error:
                    failure = as_item_failure(error) or ItemFailure(Reason.INVALID_INPUT, "the item was refused")
                    report.fail(item, failure)
                else:
                    report.stored += 1
        else:
            report.stored += len(ready)

    async def _store(self, collection: CollectionLike, items: Sequence[NewItem], call: Call) -> None:
        async with self._writers:
            await self._io.submit(call.priority, collection.upsert, items, space_id=self._engine.manifest.space_id)
