from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from tests.server.running import embed_request, refusal, run_server
from tests.server.test_lifecycle import process
from tests.server.watched import PATIENCE_S, WatchedEncoder, until
from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import COLOURS
from twinlens.server import grpc_server
from twinlens.server.core.active import open_data
from twinlens.server.last_resort import LastResort
from twinlens.server.serve import _LAST_RESORT_S, _serve, _started
from twinlens.server.settings import Settings
from twinlens.v1 import collection_pb2, collection_pb2_grpc, embedding_pb2, search_pb2


async def test_an_open_stream_does_not_hold_up_the_end(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "_STREAMS_GO_ON", 0.0)  # of the grace
    async with run_server(data, FakeEncoder()) as served:
        stream = served.embedding.EmbedStream()
        request = embedding_pb2.EmbedStreamRequest(inputs=embed_request("words").inputs)
        await stream.write(request)
        reply = await stream.read()
        assert isinstance(reply, embedding_pb2.EmbedStreamResponse)
        assert len(reply.results) == 1
        async with asyncio.timeout(PATIENCE_S):
            await served.server.stop(grace_s=3600.0)
        code, message = await refusal(stream.read())
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "the server is stopping" in message


async def test_a_stream_of_items_may_come_to_its_end_within_the_grace(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        await served.create()
        stream = served.collections.UpsertItems()
        item = collection_pb2.NewItem(id="a", caption="a red square")
        await stream.write(collection_pb2.UpsertItemsRequest(collection="photos", items=[item]))
        encoder.hold()
        stopping = asyncio.ensure_future(served.server.stop(PATIENCE_S))
        await stream.done_writing()
        await encoder.entered()
        encoder.release()
        assert (await stream).stored_count == 1
        await stopping


async def test_what_was_stored_before_sigterm_is_found_after_it(data: Path, tmp_path: Path) -> None:
    with process(data, tmp_path / "port") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = collection_pb2_grpc.CollectionServiceStub(channel)
            await stub.CreateCollection(collection_pb2.CreateCollectionRequest(collection="photos"))
            items = [collection_pb2.NewItem(id=name, caption=f"a {name} square") for name in COLOURS]
            request = collection_pb2.UpsertItemsRequest(collection="photos", items=items)
            assert (await stub.UpsertItems(iter([request]))).stored_count == len(COLOURS)
        assert server.end(signal.SIGTERM) == 0
    async with run_server(data, FakeEncoder()) as again:
        for name in COLOURS:
            part = search_pb2.QueryPart(text=f"a {name} square")
            found = await again.find(part, modality="MODALITY_TEXT", top_k=1)
            assert found.results[0].hits[0].item.id == name


async def test_a_signal_before_the_first_canary_came_through_ends_the_start() -> None:
    class Starting:
        cancelled = False

        async def start(self) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise

    server, stop = Starting(), asyncio.Event()
    starting = asyncio.ensure_future(_started(server, stop))  # type: ignore[arg-type]  # as much of it as is used
    await asyncio.sleep(0)
    stop.set()
    assert not await asyncio.wait_for(starting, PATIENCE_S)
    assert server.cancelled


LAST_RESORT = """
import sys, threading
from twinlens.server.last_resort import LastResort

last = LastResort()
if sys.argv[1] == "well":
    last.arm(3600)
    last.disarm()
else:
    last.arm(0.01)
    threading.Event().wait(60)
"""


@pytest.mark.parametrize(("ends", "code"), [("well", 0), ("hanging", 1)])
def test_a_server_that_does_not_come_to_its_end_is_ended(ends: str, code: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LAST_RESORT, ends], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ran.returncode == code
    assert ("ended by force" in ran.stderr) == bool(code)


async def test_an_end_that_may_hang_is_watched_before_it_begins(data: Path, tmp_path: Path) -> None:
    armed: list[float] = []

    class Noted(LastResort):
        def arm(self, after_s: float) -> None:
            armed.append(after_s)

    port_file = tmp_path / "port"
    settings = Settings(data=data, port=0, port_file=port_file, grace_s=7.0)
    encoder, catalog = open_data(data, None, settings, FakeEncoder())
    serving = asyncio.create_task(_serve(settings, encoder, catalog, None, Noted(), None))
    try:
        await until(port_file.exists)
        assert not armed
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(serving, PATIENCE_S)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
    assert armed == [7.0 + _LAST_RESORT_S]
