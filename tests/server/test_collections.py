from __future__ import annotations

import asyncio
import hashlib
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct

from tests.server.running import Running, picture, run_server
from tests.server.watched import PATIENCE_S, until
from tests.support.fake_encoder import FakeEncoder
from twinlens.v1 import collection_pb2 as pb
from twinlens.v1 import content_pb2


async def status(call: object) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return caught.value.code()


async def test_collections_are_created_described_listed_and_deleted(served: Running) -> None:
    for name in ("b", "a", "c"):
        await served.create(name)
    described = (await served.collections.GetCollection(pb.GetCollectionRequest(collection="a"))).collection
    assert described.id == "a"
    assert described.space_id == FakeEncoder().manifest.space_id
    assert described.dimension == 32
    assert described.item_count == 0
    assert described.HasField("create_time")
    await served.collections.DeleteCollection(pb.DeleteCollectionRequest(collection="b"))
    first = await served.collections.ListCollections(pb.ListCollectionsRequest(page_size=1))
    second = await served.collections.ListCollections(
        pb.ListCollectionsRequest(page_size=1, page_token=first.next_page_token)
    )
    assert [c.id for c in (*first.collections, *second.collections)] == ["a", "c"]
    assert first.next_page_token
    assert not second.next_page_token


async def test_unknown_doubled_and_malformed_collections_get_their_statuses(served: Running) -> None:
    await served.create("photos")
    stub = served.collections
    assert await status(served.create("photos")) is grpc.StatusCode.ALREADY_EXISTS
    for name in ("", "Capital", "../up", "a" * 65, "with space"):
        assert await status(served.create(name)) is grpc.StatusCode.INVALID_ARGUMENT
    assert await status(stub.GetCollection(pb.GetCollectionRequest(collection="no"))) is grpc.StatusCode.NOT_FOUND
    assert await status(stub.DeleteCollection(pb.DeleteCollectionRequest(collection="no"))) is grpc.StatusCode.NOT_FOUND
    assert await status(stub.ListItems(pb.ListItemsRequest(collection="no"))) is grpc.StatusCode.NOT_FOUND
    assert await status(served.upsert(collection="no")) is grpc.StatusCode.NOT_FOUND
    bad_token = pb.ListItemsRequest(collection="photos", page_token="?!")
    assert await status(stub.ListItems(bad_token)) is grpc.StatusCode.INVALID_ARGUMENT
    negative = pb.ListItemsRequest(collection="photos", page_size=-1)
    assert await status(stub.ListItems(negative)) is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_item_comes_back_as_it_was_stored(served: Running) -> None:
    await served.create()
    metadata = Struct()
    metadata.update({"tag": "cat", "year": 2020, "ratio": 0.5, "deep": {"list": [1, None, True, "x"]}})
    red = picture("red")
    report = await served.upsert(
        pb.NewItem(id="folder/ünï.png", uri="file:///somewhere", caption="a red square", metadata=metadata, image=red),
        pb.NewItem(caption="blue"),
    )
    assert report.stored_count == 2
    assert report.model.space_id == FakeEncoder().manifest.space_id
    got = await served.collections.GetItem(
        pb.GetItemRequest(collection="photos", id="folder/ünï.png", include_image=True)
    )
    assert got.image == red
    assert got.item.uri == "file:///somewhere"
    assert got.item.caption == "a red square"
    assert got.item.metadata == metadata
    assert got.item.content_hash == hashlib.sha256(red).hexdigest()
    without = await served.collections.GetItem(pb.GetItemRequest(collection="photos", id="folder/ünï.png"))
    assert without.image == b""
    caption_only = await served.collections.GetItem(
        pb.GetItemRequest(collection="photos", id=hashlib.sha256(b"blue").hexdigest(), include_image=True)
    )
    assert caption_only.image == b""
    assert (
        await status(served.collections.GetItem(pb.GetItemRequest(collection="photos", id="nobody")))
        is grpc.StatusCode.NOT_FOUND
    )
    assert (
        await status(served.collections.GetItem(pb.GetItemRequest(collection="photos")))
        is grpc.StatusCode.INVALID_ARGUMENT
    )


async def test_bad_items_of_a_stream_fail_alone_with_their_positions(served: Running) -> None:
    await served.create()
    endless = Struct()
    endless.update({"n": float("inf")})

    def stream() -> Iterator[pb.UpsertItemsRequest]:
        yield pb.UpsertItemsRequest(collection="photos")
        yield pb.UpsertItemsRequest(
            items=[pb.NewItem(id="0", image=picture("red")), pb.NewItem(id="1", image=b"no picture")]
        )
        yield pb.UpsertItemsRequest(
            collection="photos",
            items=[
                pb.NewItem(id="2"),
                pb.NewItem(id="tab\t", caption="red"),
                pb.NewItem(id="x" * 1025, caption="red"),
                pb.NewItem(id="5", caption="red", metadata=endless),
                pb.NewItem(id="6", caption="   "),
                pb.NewItem(id="7", caption="word " * 40),
                pb.NewItem(id="8", caption="red", image=b"broken"),
            ],
        )

    report = await served.collections.UpsertItems(stream())
    assert report.stored_count == 2
    assert report.truncated_count == 1
    reasons = {failure.position: failure.error.reason for failure in report.failures}
    assert list(reasons) == [1, 2, 3, 4, 5, 6, 8]
    assert reasons[1] == reasons[8] == content_pb2.ERROR_REASON_INVALID_IMAGE
    assert {reasons[i] for i in (2, 3, 4, 5)} == {content_pb2.ERROR_REASON_INVALID_INPUT}
    assert reasons[6] == content_pb2.ERROR_REASON_INVALID_TEXT
    assert report.failures[0].id == "1"
    page = await served.collections.ListItems(pb.ListItemsRequest(collection="photos"))
    assert [item.id for item in page.items] == ["0", "7"]


async def test_what_the_index_refuses_fails_alone_too(served: Running) -> None:
    await served.create()
    deep = Struct()
    deep.update({"text": "nul \0 inside"})
    report = await served.upsert(
        pb.NewItem(id="good", caption="red"),
        pb.NewItem(id="odd", caption="blue", uri="u" * 200_000, metadata=deep),
        pb.NewItem(id="good too", caption="green"),
    )
    assert report.stored_count + len(report.failures) == 3
    page = await served.collections.ListItems(pb.ListItemsRequest(collection="photos"))
    assert {"good", "good too"} <= {item.id for item in page.items}


async def test_of_two_items_of_one_id_the_later_one_stays(served: Running) -> None:
    await served.create()
    items = [pb.NewItem(id="same", caption=f"text {i}") for i in range(200)]
    report = await served.upsert(*items)
    assert report.stored_count == 200
    got = await served.collections.GetItem(pb.GetItemRequest(collection="photos", id="same"))
    assert got.item.caption == "text 199"
    described = await served.collections.GetCollection(pb.GetCollectionRequest(collection="photos"))
    assert described.collection.item_count == described.collection.text_vector_count == 1


async def test_a_stream_without_a_collection_or_with_two_is_refused(served: Running) -> None:
    await served.create("one")
    await served.create("two")
    stub = served.collections
    assert await status(stub.UpsertItems(iter([]))) is grpc.StatusCode.INVALID_ARGUMENT
    nameless = pb.UpsertItemsRequest(items=[pb.NewItem(caption="red")])
    assert await status(stub.UpsertItems(iter([nameless]))) is grpc.StatusCode.INVALID_ARGUMENT
    mixed = [pb.UpsertItemsRequest(collection=c, items=[pb.NewItem(caption="red")]) for c in ("one", "two")]
    assert await status(stub.UpsertItems(iter(mixed))) is grpc.StatusCode.INVALID_ARGUMENT


async def test_items_are_listed_page_by_page_and_deleted_by_id(served: Running) -> None:
    await served.create()
    await served.upsert(*(pb.NewItem(id=f"{i:03d}", caption=f"text {i}") for i in range(25)))
    seen: list[str] = []
    token = ""
    while True:
        page = await served.collections.ListItems(
            pb.ListItemsRequest(collection="photos", page_size=10, page_token=token)
        )
        seen += [item.id for item in page.items]
        token = page.next_page_token
        if not token:
            break
    assert seen == [f"{i:03d}" for i in range(25)]
    request = pb.DeleteItemsRequest(collection="photos", ids=["000", "001", "nobody"])
    assert (await served.collections.DeleteItems(request)).deleted_count == 2
    assert (await served.collections.DeleteItems(request)).deleted_count == 0
    empty = pb.DeleteItemsRequest(collection="photos")
    assert await status(served.collections.DeleteItems(empty)) is grpc.StatusCode.INVALID_ARGUMENT
    many = pb.DeleteItemsRequest(collection="photos", ids=["x"] * 10_001)
    assert await status(served.collections.DeleteItems(many)) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_restart_keeps_everything(data: object, served: Running) -> None:
    await served.fill_with_colours()
    before = await served.collections.ListItems(pb.ListItemsRequest(collection="photos"))
    await served.server.stop(0)
    async with run_server(data, FakeEncoder()) as again:  # type: ignore[arg-type]
        after = await again.collections.ListItems(pb.ListItemsRequest(collection="photos"))
        assert after == before
        got = await again.collections.GetItem(pb.GetItemRequest(collection="photos", id="red", include_image=True))
        assert got.image == picture("red")


async def test_an_unexpected_failure_is_internal_without_its_words(
    served: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(**_: object) -> object:
        raise OSError("secret /path/of/the/server")

    with monkeypatch.context() as patch:
        patch.setattr(served.app.catalog, "entries", explode)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.collections.ListCollections(pb.ListCollectionsRequest())
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    request_id = dict(caught.value.trailing_metadata())["x-request-id"]
    assert request_id in (caught.value.details() or "")
    assert "secret" not in (caught.value.details() or "")
    assert "secret" in caplog.text
    await served.collections.ListCollections(pb.ListCollectionsRequest())


async def test_a_message_that_does_not_parse_is_refused_plainly(served: Running) -> None:
    unary: Any = served.channel.unary_unary("/twinlens.v1.EmbeddingService/Embed")
    assert await status(unary(b"\xff\xff\xff")) is grpc.StatusCode.INVALID_ARGUMENT
    stream: Any = served.channel.stream_unary("/twinlens.v1.CollectionService/UpsertItems")
    assert await status(stream(iter([b"\xff\xff\xff"]))) is grpc.StatusCode.INVALID_ARGUMENT
    assert (await served.embed("red")).results


async def test_many_streams_at_once_store_everything(served: Running) -> None:
    await served.create()

    async def write(writer: int) -> int:
        items = [pb.NewItem(id=f"{writer}-{i}", caption=f"text {i}") for i in range(200)]
        return int((await served.upsert(*items)).stored_count)

    assert await asyncio.gather(*(write(writer) for writer in range(8))) == [200] * 8
    described = await served.collections.GetCollection(pb.GetCollectionRequest(collection="photos"))
    assert described.collection.item_count == 1600


async def test_a_stream_that_breaks_off_gives_its_room_back(served: Running) -> None:
    await served.create()

    def broken() -> Iterator[pb.UpsertItemsRequest]:
        items = [pb.NewItem(id=str(i), caption=f"text {i}") for i in range(200)]
        yield pb.UpsertItemsRequest(collection="photos", items=items)
        yield pb.UpsertItemsRequest(collection="other", items=items)

    for _ in range(3):
        assert await status(served.collections.UpsertItems(broken())) is grpc.StatusCode.INVALID_ARGUMENT
    assert (await served.upsert(pb.NewItem(id="after", caption="red"))).stored_count == 1
    assert served.app.upserter._slots._value == 4


async def test_streams_that_stall_take_no_room_from_others(served: Running) -> None:
    await served.create()
    go_on = asyncio.Event()

    async def stalled(writer: int) -> AsyncIterator[pb.UpsertItemsRequest]:
        items = [pb.NewItem(id=f"{writer}-{i}", caption=f"text {i}") for i in range(130)]
        yield pb.UpsertItemsRequest(collection="photos", items=items)
        await go_on.wait()
        yield pb.UpsertItemsRequest(items=[pb.NewItem(id=f"{writer}-last", caption="last")])

    calls = [served.collections.UpsertItems(stalled(writer)) for writer in range(6)]
    described = pb.GetCollectionRequest(collection="photos")
    async with asyncio.timeout(60):
        while (await served.collections.GetCollection(described)).collection.item_count < 6 * 128:  # two groups of each
            pass
    request = pb.UpsertItemsRequest(collection="photos", items=[pb.NewItem(id="quick", caption="red")])
    assert (await served.collections.UpsertItems(iter([request]), timeout=60)).stored_count == 1
    go_on.set()
    assert [(await call).stored_count for call in calls] == [131] * 6
    assert served.app.upserter._slots._value == 4


async def test_writes_that_wait_for_the_disk_leave_threads_to_readers(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_server(data, FakeEncoder(), io_threads=2) as served:
        await served.create()
        collection = served.app.catalog.get("photos")
        disk, waiting = threading.Event(), threading.Semaphore(0)
        upsert = collection.upsert

        def slow(*given: Any, **options: Any) -> list[str]:
            waiting.release()
            assert disk.wait(PATIENCE_S)
            return upsert(*given, **options)

        monkeypatch.setattr(collection, "upsert", slow)
        writes = [asyncio.ensure_future(served.upsert(pb.NewItem(id=str(i), caption="red"))) for i in range(3)]
        assert await asyncio.to_thread(waiting.acquire, timeout=PATIENCE_S)
        await until(lambda: len(served.app.engine.texts) == 0 and served.app.upserter._writers.locked())
        try:
            request = pb.GetCollectionRequest(collection="photos")
            await served.collections.GetCollection(request, timeout=PATIENCE_S / 2)
        finally:
            disk.set()
        assert [reply.stored_count for reply in await asyncio.gather(*writes)] == [1, 1, 1]


async def test_a_damaged_collection_can_be_deleted(served: Running, data: Path) -> None:
    await served.create()
    folder = data / "collections" / "photos"
    shutil.copytree(folder, data / "collections" / "damaged")
    (data / "collections" / "damaged" / "collection.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(grpc.aio.AioRpcError, match="collection damaged") as refused:
        await served.collections.GetCollection(pb.GetCollectionRequest(collection="damaged"))
    assert refused.value.code() is grpc.StatusCode.DATA_LOSS
    assert str(data) not in (refused.value.details() or "")
    await served.collections.DeleteCollection(pb.DeleteCollectionRequest(collection="damaged"))
    gone = served.collections.DeleteCollection(pb.DeleteCollectionRequest(collection="damaged"))
    assert await status(gone) is grpc.StatusCode.NOT_FOUND
    nameless = served.collections.DeleteCollection(pb.DeleteCollectionRequest())
    assert await status(nameless) is grpc.StatusCode.INVALID_ARGUMENT
