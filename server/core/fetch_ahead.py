"""Items to store whose pictures have to be fetched first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

from twinlens.server.core.call import Call
from twinlens.server.core.errors import as_item_failure
from twinlens.server.core.fetch import Fetcher
from twinlens.server.core.fetching.errors import NotFetched
from twinlens.server.core.incoming import Incoming

# Of one stream at a time: what a stream of addresses may hold in memory before its items are grouped.
AHEAD = 4


async def fetch_ahead(items: AsyncIterator[Incoming], fetcher: Fetcher, call: Call) -> AsyncGenerator[Incoming, None]:
    """The items in their order, each with its picture's bytes, or with the fault that there are none.

    A few pictures are fetched at a time; items that bring theirs pass at once where none before them is waited for.
    """
    waiting: deque[asyncio.Task[Incoming] | Incoming] = deque()
    try:
        async for item in items:
            if not item.image_url or item.fault is not None:
                waiting.append(item)
            else:
                waiting.append(asyncio.create_task(_fetched(item, fetcher, call)))
            while waiting and (len(waiting) >= AHEAD or not _pending(waiting[0])):
                yield await _ready(waiting.popleft())
        while waiting:
            yield await _ready(waiting.popleft())
    finally:
        tasks = [entry for entry in waiting if isinstance(entry, asyncio.Task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _pending(entry: asyncio.Task[Incoming] | Incoming) -> bool:
    return isinstance(entry, asyncio.Task) and not entry.done()


async def _ready(entry: asyncio.Task[Incoming] | Incoming) -> Incoming:
    return await entry if isinstance(entry, asyncio.Task) else entry


async def _fetched(item: Incoming, fetcher: Fetcher, call: Call) -> Incoming:
    try:
        data = await fetcher.fetch(item.image_url, call)
    except NotFetched as error:
        return replace(item, fault=as_item_failure(error))
    return replace(item, image=data, size_bytes=item.size_bytes + len(data))
