"""Two servers over the same collections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.server.running import picture, run_server
from tests.support.fake_encoder import FakeEncoder
from tests.support.milvus_server import milvus_running
from tests.support.pictures import COLOURS
from twinlens.v1 import collection_operations_pb2 as operations_pb
from twinlens.v1 import collection_pb2 as pb
from twinlens.v1 import search_pb2


@pytest.mark.slow
async def test_what_one_server_stores_the_other_finds(tmp_path: Path) -> None:
    for folder in ("milvus", "one", "two"):
        tmp_path.joinpath(folder).mkdir()
    with milvus_running(tmp_path / "milvus") as address:
        settings: dict[str, Any] = {"index": address, "pictures": str(tmp_path / "pictures")}
        async with (
            run_server(tmp_path / "one", FakeEncoder(), **settings) as one,
            run_server(tmp_path / "two", FakeEncoder(), **settings) as two,
        ):
            await one.fill_with_colours()
            red = search_pb2.QueryPart(text="red")
            (result,) = (await two.find(red)).results
            assert result.hits[0].item.id == "red"
            (result,) = (await two.find(red, filter='id = "b*"')).results
            assert {hit.item.id for hit in result.hits} == {name for name in COLOURS if name.startswith("b")}
            got = await two.collections.GetItem(pb.GetItemRequest(collection="photos", id="red", include_image=True))
            assert got.image == picture("red")
            await two.collections.DeleteItems(pb.DeleteItemsRequest(collection="photos", ids=["red"]))
            (result,) = (await one.find(red, top_k=100)).results
            assert {hit.item.id for hit in result.hits} == set(COLOURS) - {"red"}
            described = await one.collections.GetCollection(pb.GetCollectionRequest(collection="photos"))
            assert described.collection.item_count == len(COLOURS) - 1
            with pytest.raises(grpc.aio.AioRpcError, match="lives in Milvus") as caught:
                await one.operations.MergeCollection(operations_pb.MergeCollectionRequest(collection="photos"))
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            await one.collections.DeleteCollection(pb.DeleteCollectionRequest(collection="photos"))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await two.find(red)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
