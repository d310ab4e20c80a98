from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from tests.server.running import Running, embed_request, refusal, run_server
from tests.server.watched import PATIENCE_S, WatchedEncoder, until
from twinlens.server.core.lanes import Priority
from twinlens.v1 import collection_pb2, search_pb2

SOON_S = 0.2
PHOTOS = "photos"

# What waits for a thread that reads and writes.
CALLS: dict[str, Callable[[Running], Any]] = {
    "CreateCollection": lambda served: served.collections.CreateCollection(
        collection_pb2.CreateCollectionRequest(collection="late"), timeout=SOON_S
    ),
    "GetCollection": lambda served: served.collections.GetCollection(
        collection_pb2.GetCollectionRequest(collection=PHOTOS), timeout=SOON_S
    ),
    "ListCollections": lambda served: served.collections.ListCollections(
        collection_pb2.ListCollectionsRequest(), timeout=SOON_S
    ),
    "ListItems": lambda served: served.collections.ListItems(
        collection_pb2.ListItemsRequest(collection=PHOTOS), timeout=SOON_S
    ),
    "DeleteItems": lambda served: served.collections.DeleteItems(
        collection_pb2.DeleteItemsRequest(collection=PHOTOS, ids=["red"]), timeout=SOON_S
    ),
    "DeleteCollection": lambda served: served.collections.DeleteCollection(
        collection_pb2.DeleteCollectionRequest(collection=PHOTOS), timeout=SOON_S
    ),
    "Search": lambda served: served.search.Search(
        search_pb2.SearchRequest(
            collection=PHOTOS, queries=[search_pb2.Query(parts=[search_pb2.QueryPart(text="red")])], top_k=1
        ),
        timeout=SOON_S,
    ),
    "UpsertItems": lambda served: served.collections.UpsertItems(
        iter(
            [
                collection_pb2.UpsertItemsRequest(
                    collection=PHOTOS, items=[collection_pb2.NewItem(id="late", caption="late")]
                )
            ]
        ),
        timeout=SOON_S,
    ),
}


@asynccontextmanager
async def nothing_is_read(served: Running) -> AsyncIterator[None]:
    """All threads that read and write are held."""
    open_again = threading.Event()
    begun = [threading.Event() for _ in range(served.app.settings.io_threads)]

    def hold(event: threading.Event) -> bool:
        event.set()
        return open_again.wait(PATIENCE_S)

    held = [served.app.io.submit(Priority.URGENT, hold, event) for event in begun]
    for event in begun:
        assert await asyncio.to_thread(event.wait, PATIENCE_S)
    try:
        yield
    finally:
        open_again.set()
        assert all(await asyncio.gather(*held))


async def test_whoever_waits_for_a_disk_is_told_in_time_and_nothing_is_done_for_him(served: Running) -> None:
    await served.fill_with_colours()
    before = await state(served)
    async with nothing_is_read(served):
        outcomes = await asyncio.gather(*(refusal(call(served)) for call in CALLS.values()))
        assert {name: code for name, (code, _) in zip(CALLS, outcomes, strict=True)} == dict.fromkeys(
            CALLS, grpc.StatusCode.DEADLINE_EXCEEDED
        )
    await until(lambda: len(served.app.io) == 0)
    await until(lambda: served.app.admission.items == 0)
    assert await state(served) == before


async def state(served: Running) -> tuple[list[str], int]:
    listed = await served.collections.ListCollections(collection_pb2.ListCollectionsRequest())
    counted = await served.collections.CountItems(collection_pb2.CountItemsRequest(collection=PHOTOS))
    return [collection.id for collection in listed.collections], counted.count


async def test_a_stream_whose_caller_sends_nothing_more_ends_with_its_deadline(served: Running) -> None:
    await served.create()
    stream = served.collections.UpsertItems(timeout=SOON_S)
    await stream.write(collection_pb2.UpsertItemsRequest(collection=PHOTOS))
    assert (await refusal(stream))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: served.server.running_calls == 0)


async def test_whoever_waits_for_a_tower_is_told_in_time(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.hold()
        running = asyncio.ensure_future(served.embed("running"))
        await encoder.entered()
        late = served.embedding.Embed(embed_request("late"), timeout=SOON_S)
        assert (await refusal(late))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: served.server.running_calls == 1)
        encoder.release()
        await running
        await until(lambda: len(served.app.engine.texts) == 0)
        assert sum(encoder.text_batches) == 1
