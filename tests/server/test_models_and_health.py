from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.server.running import Running, run_server
from tests.server.watched import WatchedEncoder
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.active import StartError
from twinlens.server.grpc_server import SERVICES
from twinlens.v1 import collection_pb2, model_pb2

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def health(served: Running, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(served.channel)
    reply = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(reply.status)


async def test_the_precision_and_provider_are_told_and_kept_with_what_they_computed(data: Path) -> None:
    class Reduced(FakeEncoder):
        variant = "image int8 on cpu, text fp32 on cpu"

    async with run_server(data, Reduced()) as served:
        model = (await served.models.GetModel(model_pb2.GetModelRequest())).model
        assert model.variant == Reduced.variant
        await served.create()
        await served.upsert(collection_pb2.NewItem(id="a", caption="red"))
        request = collection_pb2.GetCollectionRequest(collection="photos")
        assert list((await served.collections.GetCollection(request)).collection.variants) == [Reduced.variant]


async def test_the_model_is_listed_and_found_by_name(served: Running) -> None:
    listed = (await served.models.ListModels(model_pb2.ListModelsRequest())).models
    assert len(listed) == 1
    assert listed[0].active
    assert json.loads(listed[0].manifest_json)["space_id"] == FakeEncoder().manifest.space_id
    for name in ("", "fake", "fake/1"):
        got = (await served.models.GetModel(model_pb2.GetModelRequest(model=name))).model
        assert got == listed[0]
    for name in ("other", "fake/2", "fake/"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.models.GetModel(model_pb2.GetModelRequest(model=name))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_is_green_for_every_service_and_unknown_for_others(served: Running) -> None:
    for service in ("", *SERVICES):
        assert await health(served, service) == SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health(served, "twinlens.v1.NoService")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_follows_the_encoder(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.broken = RuntimeError("gone")
        assert not await served.server.health.check()
        assert await health(served) == NOT_SERVING
        encoder.broken = None
        assert await served.server.health.check()
        assert await health(served) == SERVING


async def test_health_follows_the_index(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await served.fill_with_colours()
    assert await served.server.health.check()
    collection = served.app.catalog.get("photos")

    def explode(*_: object, **__: object) -> object:
        raise OSError("gone")

    monkeypatch.setattr(collection, "search", explode)
    assert not await served.server.health.check()


async def test_a_damaged_item_turns_neither_health_red_nor_a_server_away(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_server(data, WatchedEncoder()) as served:
        await served.fill_with_colours()
    with closing(sqlite3.connect(data / "collections/photos/collection.db", isolation_level=None)) as database:
        database.execute("UPDATE items SET caption = 'flipped'")
    async with run_server(data, WatchedEncoder()) as served:
        assert await health(served) == SERVING
        assert any("collection photos: the row of item" in record.message for record in caplog.records)
        await served.create("whole")
        assert await served.server.health.check()


async def test_a_collection_that_is_deleted_meanwhile_does_not_turn_health_red(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.create()
    listed = served.app.catalog.list()
    served.app.catalog.delete("photos")
    monkeypatch.setattr(served.app.catalog, "list", lambda **_: listed)
    assert await served.server.health.check()


async def test_a_stuck_encoder_turns_health_red(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, canary_timeout_s=0.2) as served:
        encoder.hold()
        assert not await served.server.health.check()
        assert await health(served) == NOT_SERVING
        encoder.release()


async def test_a_server_whose_encoder_does_not_answer_does_not_start(data: Path) -> None:
    encoder = WatchedEncoder()
    encoder.broken = RuntimeError("gone")
    with pytest.raises(StartError, match="encoder does not answer"):
        async with run_server(data, encoder):
            pass
    encoder.broken = None
    async with run_server(data, encoder):
        pass  # and it left nothing locked


async def test_a_server_whose_encoder_is_too_slow_says_how_long_it_waited(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr("twinlens.server.health.fly", late)
    with pytest.raises(StartError, match=r"within 7\.5 s"):
        async with run_server(data, WatchedEncoder(), canary_timeout_s=7.5):
            pass


async def test_reflection_names_the_services(served: Running) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    replies = [reply async for reply in call]
    names = {service.name for service in replies[0].list_services_response.service}
    assert {*SERVICES, "grpc.health.v1.Health"} <= names
