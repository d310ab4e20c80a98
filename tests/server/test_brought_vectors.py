from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np
import pytest

from tests.server.running import Running, picture, refusal
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.call import Call
from twinlens.server.core.incoming import BROUGHT_GROUP_ITEMS, Incoming
from twinlens.server.core.upsert_report import UpsertReport
from twinlens.v1 import collection_pb2 as pb
from twinlens.v1 import content_pb2, search_pb2

SPACE = FakeEncoder().manifest.space_id


def vector(*values: float) -> content_pb2.Vector:
    return content_pb2.Vector(values=[*values, *[0.0] * (32 - len(values))])


async def bring(served: Running, *items: pb.NewItem, space_id: str = SPACE) -> pb.UpsertItemsResponse:
    request = pb.UpsertItemsRequest(collection="photos", items=items, space_id=space_id)
    return await served.collections.UpsertItems(iter([request]))


async def find(served: Running, like: content_pb2.Vector, modality: content_pb2.Modality.ValueType) -> list[str]:
    (result,) = (await served.find(search_pb2.QueryPart(vector=like), modality=modality)).results
    return [f"{hit.item.id} {hit.score:.3f}" for hit in result.hits]


async def test_vectors_that_items_bring_are_found_as_they_are_and_nothing_is_embedded(served: Running) -> None:
    await served.create()
    report = await bring(
        served,
        pb.NewItem(id="alone", image_vector=vector(3.0)),
        pb.NewItem(id="with-picture", image=picture("red"), caption="red", image_vector=vector(0.0, 2.0)),
        pb.NewItem(id="both", image_vector=vector(0.6, 0.8), text_vector=vector(0.0, 0.0, 1.0)),
    )
    assert (report.stored_count, list(report.failures)) == (3, [])
    assert await find(served, vector(1.0), content_pb2.MODALITY_IMAGE) == [
        "alone 1.000",
        "both 0.600",
        "with-picture 0.000",
    ]
    assert await find(served, vector(0.0, 0.0, 1.0), content_pb2.MODALITY_TEXT) == ["both 1.000"]
    got = await served.collections.GetItem(
        pb.GetItemRequest(collection="photos", id="with-picture", include_image=True)
    )
    assert got.image == picture("red")


@pytest.mark.parametrize(
    ("item", "reason", "message"),
    [
        (
            pb.NewItem(id="x", image_vector=content_pb2.Vector(values=[1.0] * 31)),
            content_pb2.ERROR_REASON_INVALID_VECTOR,
            "the vector has 31 values; the model's vectors have 32",
        ),
        (
            pb.NewItem(id="x", text_vector=vector(float("nan"))),
            content_pb2.ERROR_REASON_INVALID_VECTOR,
            "not finite",
        ),
        (pb.NewItem(id="x", image_vector=vector()), content_pb2.ERROR_REASON_INVALID_VECTOR, "zero"),
        (pb.NewItem(image_vector=vector(1.0)), content_pb2.ERROR_REASON_INVALID_INPUT, "needs an id"),
    ],
)
async def test_a_vector_that_cannot_be_used_fails_its_item_alone(
    served: Running, item: pb.NewItem, reason: int, message: str
) -> None:
    await served.create()
    report = await bring(served, pb.NewItem(id="good", image_vector=vector(1.0)), item, pb.NewItem(caption="red"))
    assert report.stored_count == 2
    (failure,) = report.failures
    assert (failure.position, failure.error.reason) == (1, reason)
    assert message in failure.error.message


async def test_vectors_of_another_space_are_refused_naming_both(served: Running) -> None:
    await served.create()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await bring(served, pb.NewItem(id="x", image_vector=vector(1.0)), space_id="elsewhere")
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "elsewhere" in str(refused.value.details())
    assert SPACE in str(refused.value.details())


async def test_vectors_of_no_named_space_are_refused(served: Running) -> None:
    await served.create()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await bring(served, pb.NewItem(id="x", image_vector=vector(1.0)), space_id="")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "space_id" in str(refused.value.details())


async def test_all_messages_of_a_stream_are_of_one_space(served: Running) -> None:
    await served.create()
    items = [pb.NewItem(id="x", image_vector=vector(1.0))]
    spaces = (SPACE, "elsewhere")
    requests = [pb.UpsertItemsRequest(collection="photos", items=items, space_id=space) for space in spaces]
    code, message = await refusal(served.collections.UpsertItems(iter(requests)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "same space" in message


async def test_groups_are_written_in_order_however_long_each_takes_to_be_made_ready(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.create()
    real, second_is_ready = served.app.upserter._embed, asyncio.Event()

    async def first_last(group: Sequence[Incoming], report: UpsertReport, call: Call) -> Any:
        ready = await real(group, report, call)
        if group[0].position == 0:
            await second_is_ready.wait()
        else:
            second_is_ready.set()
        return ready

    monkeypatch.setattr(served.app.upserter, "_embed", first_last)
    items = [pb.NewItem(id="same", caption=f"{i}", image_vector=vector(1.0)) for i in range(BROUGHT_GROUP_ITEMS + 1)]
    assert (await bring(served, *items)).stored_count == len(items)
    request = pb.GetItemRequest(collection="photos", id="same")
    assert (await served.collections.GetItem(request)).item.caption == f"{BROUGHT_GROUP_ITEMS}"


async def test_a_long_stream_of_vectors_keeps_order_and_the_later_of_equal_ids(served: Running) -> None:
    await served.create()
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((600, 32)).astype(np.float32)
    items = [pb.NewItem(id=f"{i % 500:03d}", image_vector=content_pb2.Vector(values=row)) for i, row in enumerate(rows)]
    requests = [
        pb.UpsertItemsRequest(collection="photos", items=items[start : start + 100], space_id=SPACE)
        for start in range(0, 600, 100)
    ]
    report = await served.collections.UpsertItems(iter(requests))
    assert report.stored_count == 600
    hits = await find(served, content_pb2.Vector(values=rows[550]), content_pb2.MODALITY_IMAGE)
    assert hits[0] == "050 1.000"
