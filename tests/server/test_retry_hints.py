from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tests.server.running import Running, embed_request, run_server
from tests.server.watched import WatchedEncoder, until
from tests.support.fake_encoder import FakeEncoder
from twinlens.server import grpc_server
from twinlens.server.services.status import DETAILS, PUSHBACK, retry_hint
from twinlens.v1 import collection_pb2, model_pb2


async def refused(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def retry_after_s(error: grpc.aio.AioRpcError) -> float:
    status = rpc_status.from_call(error)  # which refuses details that contradict the call
    assert status is not None
    info = error_details_pb2.RetryInfo()
    (detail,) = status.details
    assert detail.Unpack(info)
    seconds = info.retry_delay.ToTimedelta().total_seconds()
    assert int(metadata(error)[PUSHBACK]) == round(1000 * seconds)
    return float(seconds)


def metadata(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    return dict(error.trailing_metadata() or ())


async def test_a_full_server_says_when_to_try_again(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, max_items_in_flight=1) as served:
        encoder.hold()
        running = asyncio.ensure_future(served.embed("running"))
        await encoder.entered()
        error = await refused(served.embedding.Embed(embed_request("more"), metadata=(("x-request-id", "mine"),)))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert 0 < retry_after_s(error) < 60
        assert metadata(error)["x-request-id"] == "mine"
        encoder.release()
        await running


async def test_more_calls_than_the_server_could_serve_are_refused_at_once_with_a_hint(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "_CALLS_WITHOUT_ITEMS", 1)
    async with run_server(data, FakeEncoder(), max_items_in_flight=1) as served:
        await served.create()
        streams = [served.collections.UpsertItems() for _ in range(2)]
        for stream in streams:
            await stream.write(collection_pb2.UpsertItemsRequest(collection="photos"))
        while await _answers(served):
            pass  # until both have begun
        error = await refused(served.models.GetModel(model_pb2.GetModelRequest()))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert 0 < retry_after_s(error) < 60
        streams[0].cancel()
        while not await _answers(served):
            pass
        streams[1].cancel()


async def _answers(served: Running) -> bool:
    try:
        await served.models.GetModel(model_pb2.GetModelRequest())
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_a_message_that_is_too_large_comes_without_a_hint(data: Path) -> None:
    async with run_server(data, FakeEncoder(), max_message_bytes=2**20) as served:
        error = await refused(served.embed(bytes(2**20 + 1)))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not metadata(error).keys() & {DETAILS, PUSHBACK}
        await until(lambda: served.app.admission.items == 0)
        assert (await served.embed("small")).results[0].WhichOneof("outcome") == "embedding"


async def test_other_failures_come_without_a_hint(served: Running) -> None:
    error = await refused(served.embed())
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not metadata(error).keys() & {DETAILS, PUSHBACK}


def test_a_hint_says_the_code_and_the_message_of_its_call() -> None:
    hint = dict(retry_hint(grpc.StatusCode.UNAVAILABLE, "später, bitte", 0.25))
    assert hint[PUSHBACK] == "250"
    details = hint[DETAILS]
    assert isinstance(details, bytes)
    status = status_pb2.Status.FromString(details)
    assert (status.code, status.message) == (14, "später, bitte")
