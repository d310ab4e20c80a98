"""Storing a stream of items: decode and embed at bulk priority, then one durable transaction a group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index.contract import CollectionLike
from twinlens.index.errors import InvalidArgument, InvalidVector
from twinlens.index.ids import MAX_ITEM_ID_BYTES, check_item_id
from twinlens.index.item import Modality, NewItem
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Input, Picture, Text, UnitVector
from twinlens.server.core.errors import (
    Code,
    ItemFailure,
    Reason,
    ServiceError,
    as_item_failure,
    invalid_argument,
)
from twinlens.server.core.fetch import Fetcher
from twinlens.server.core.fetch_ahead import fetch_ahead
from twinlens.server.core.lanes import Priority
from twinlens.server.core.lookup import unit_vector
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.towers import no_tower

GROUP_ITEMS = 64
# Of items that bring their vectors: a transaction costs the same for more of them, and nobody waits for a tower.
BROUGHT_GROUP_ITEMS = 256
GROUP_BYTES = 16 * 2**20
# Groups in work over all streams: what bounds the memory of bulk writing.
_GROUPS_AT_ONCE = 4
_GROUPS_A_STREAM = 2
# What a failure takes beside its id and its message: a position, a reason, and their tags and lengths.
_FAILURE_BYTES = 32


@dataclass(frozen=True, slots=True)
class Incoming:
    """An item as it came in; `fault` is set if it could not even be read.

    Attributes:
        position: Its place in the stream, from 0.
        image: The encoded picture; empty means none.
        image_url: Where to fetch it instead.
        vectors: Brought instead of being embedded, each of shape (d,).
        size_bytes: What all of it took on the wire.
    """

    position: int
    id: str = ""
    uri: str = ""
    caption: str = ""
    image: bytes = b""
    image_url: str = ""
    vectors: Mapping[Modality, NDArray[np.float32]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    size_bytes: int = 0
    fault: ItemFailure | None = None


@dataclass(frozen=True, slots=True)
class NotStored:
    """An item that was not stored, and why; an id that is too long to be one is cut short."""

    position: int
    id: str
    failure: ItemFailure


@dataclass(slots=True)
class UpsertReport:
    """What became of a stream.

    Attributes:
        max_failure_bytes: What the failures may take, for a stream has no end.
        stored: How many items are on disk.
        truncated: How many captions were cut.
        failures: The items that are not stored.
    """

    max_failure_bytes: int
    stored: int = 0
    truncated: int = 0
    failures: list[NotStored] = field(default_factory=list)
    _failure_bytes: int = field(default=0, init=False, repr=False)

    def fail(self, item: Incoming, failure: ItemFailure) -> None:
        """Notes an item that is not stored.

        Raises:
            ServiceError: INVALID_ARGUMENT where these are more than a reply can tell.
        """
        told = item.id if len(item.id.encode()) <= MAX_ITEM_ID_BYTES else f"{item.id[:57]}..."
        self.failures.append(NotStored(item.position, told, failure))
        self._failure_bytes += len(told.encode()) + len(failure.message.encode()) + _FAILURE_BYTES
        if self._failure_bytes > self.max_failure_bytes:
            raise invalid_argument(
                f"{len(self.failures)} items of the stream cannot be stored, more than a reply can tell; the last: "
                f"{failure.message} (what is stored already stays)"
            )


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
                aclosing(_groups(whole)) as groups,
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
            fault = item.fault or _fault(item) or self._useless(item)
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


def _fault(item: Incoming) -> ItemFailure | None:
    if not item.image and not item.caption:
        if not item.vectors:
            return ItemFailure(Reason.INVALID_INPUT, "the item has neither image nor caption")
        if not item.id:
            return ItemFailure(Reason.INVALID_INPUT, "an item of vectors alone needs an id")
    try:
        if item.id:  # refused before the item is embedded for nothing
            check_item_id(item.id)
    except InvalidArgument as error:
        return ItemFailure(Reason.INVALID_INPUT, str(error))
    return None


async def _groups(items: AsyncIterator[Incoming]) -> AsyncGenerator[list[Incoming], None]:
    group: list[Incoming] = []
    size_bytes = 0
    async for item in items:
        group.append(item)
        size_bytes += item.size_bytes
        most = BROUGHT_GROUP_ITEMS if item.vectors else GROUP_ITEMS
        if len(group) >= most or size_bytes >= GROUP_BYTES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group
