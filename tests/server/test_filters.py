"""Filters over the wire: what they find is tests/index/filters' matter."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct

from tests.server.running import Running, picture, refusal
from tests.support.fake_encoder import FakeEncoder
from twinlens.index.interruption import is_abandoned
from twinlens.v1 import collection_operations_pb2 as operations_pb
from twinlens.v1 import collection_pb2 as pb
from twinlens.v1 import search_pb2

TAGS = {"red": "warm", "blue": "cold", "cyan": "cold", "green": "cold"}


async def fill(served: Running) -> None:
    await served.create()
    items = []
    for year, (colour, tag) in enumerate(TAGS.items(), 2020):
        metadata = Struct()
        metadata.update({"tag": tag, "year": year, "deep": {"tags": [colour, tag]}})
        items.append(pb.NewItem(id=colour, image=picture(colour), caption=colour, metadata=metadata))
    assert (await served.upsert(*items)).stored_count == len(TAGS)


async def found(served: Running, filter_: str, **options: Any) -> list[str]:
    reply = await served.find(search_pb2.QueryPart(text="red"), filter=filter_, **options)
    return [hit.item.id for hit in reply.results[0].hits]


async def listed(served: Running, filter_: str, size: int = 100) -> list[str]:
    ids: list[str] = []
    token = ""
    while True:
        page = await served.collections.ListItems(
            pb.ListItemsRequest(collection="photos", filter=filter_, page_size=size, page_token=token)
        )
        ids += [item.id for item in page.items]
        token = page.next_page_token
        if not token:
            return ids


async def test_searches_find_only_what_matches(served: Running) -> None:
    await fill(served)
    assert (await found(served, ""))[0] == "red"
    assert sorted(await found(served, 'tag = "cold"')) == ["blue", "cyan", "green"]
    assert sorted(await found(served, "tag = cold", top_k=2)) == sorted((await found(served, "tag = cold"))[:2])
    assert await found(served, "year = 2021 AND deep.tags:cold") == ["blue"]
    assert await found(served, "year > 3000") == []


async def test_lists_are_paged_counted_and_deleted_by_filter(served: Running) -> None:
    await fill(served)
    assert await listed(served, "tag = cold", size=2) == ["blue", "cyan", "green"]
    count = await served.collections.CountItems(pb.CountItemsRequest(collection="photos", filter="tag = cold"))
    assert count.count == 3
    assert (await served.collections.CountItems(pb.CountItemsRequest(collection="photos"))).count == 4
    gone = await served.collections.DeleteItems(pb.DeleteItemsRequest(collection="photos", filter="year < 2022"))
    assert gone.deleted_count == 2
    assert await listed(served, "") == ["cyan", "green"]


async def test_items_are_deleted_by_ids_or_by_a_filter(served: Running) -> None:
    await fill(served)
    for request in (
        pb.DeleteItemsRequest(collection="photos"),
        pb.DeleteItemsRequest(collection="photos", ids=["red"], filter="tag = cold"),
        pb.DeleteItemsRequest(collection="photos", filter="  "),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.collections.DeleteItems(request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "filter" in (caught.value.details() or "")
    assert len(await listed(served, "")) == 4


async def test_unreadable_filters_are_refused_with_their_place_before_anything_is_embedded(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(served)

    def never(*_: object) -> None:
        raise AssertionError("embedded")

    monkeypatch.setattr(FakeEncoder, "encode_texts", never)
    stub = served.collections
    query = search_pb2.Query(parts=[search_pb2.QueryPart(text="red")])
    for call in (
        served.search.Search(search_pb2.SearchRequest(collection="photos", queries=[query], top_k=1, filter="tag ==")),
        stub.ListItems(pb.ListItemsRequest(collection="photos", filter="tag ==")),
        stub.CountItems(pb.CountItemsRequest(collection="photos", filter="tag ==")),
        stub.DeleteItems(pb.DeleteItemsRequest(collection="photos", filter="tag ==")),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (caught.value.details() or "").startswith("filter, column 6: expected a value")


async def test_paths_get_indexes_that_the_collection_lists(served: Running) -> None:
    await fill(served)
    made = await served.operations.CreateMetadataIndex(
        operations_pb.CreateMetadataIndexRequest(collection="photos", path="metadata.year")
    )
    assert list(made.collection.metadata_indexes) == ["year"]
    assert await found(served, "year = 2021") == ["blue"]
    gone = await served.operations.DeleteMetadataIndex(
        operations_pb.DeleteMetadataIndexRequest(collection="photos", path="year")
    )
    assert list(gone.collection.metadata_indexes) == []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.operations.CreateMetadataIndex(
            operations_pb.CreateMetadataIndexRequest(collection="photos", path="id")
        )
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_filter_that_takes_longer_than_its_caller_waits_ends(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(served)
    ended, give_up_s = threading.Event(), time.monotonic() + 10

    def endless(_: str) -> int:
        while not is_abandoned():
            assert time.monotonic() < give_up_s
        ended.set()
        return 0

    monkeypatch.setattr(served.app.catalog.get("photos"), "count", endless)
    request = pb.CountItemsRequest(collection="photos", filter="year = 2020")
    assert (await refusal(served.collections.CountItems(request, timeout=0.2)))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    assert await asyncio.to_thread(ended.wait, 10)
