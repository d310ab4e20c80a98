from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.server.running import Running, embed_request, run_server
from tests.server.watched import PATIENCE_S, WatchedEncoder, until
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.active import StartError, open_data
from twinlens.server.core.app import Application
from twinlens.server.grpc_server import GrpcServer
from twinlens.server.serve import serve
from twinlens.server.settings import Settings
from twinlens.v1 import collection_pb2, collection_pb2_grpc, embedding_pb2_grpc

SCRIPT = Path(__file__).with_name("serve_fake.py")


class Process:
    """A server in a process of its own; its stderr is read line by line."""

    def __init__(self, process: subprocess.Popen[str], port_file: Path) -> None:
        self.process = process
        self.read_until("twinlens: serving fake/1 on 127.0.0.1:")
        self.address = f"127.0.0.1:{port_file.read_text().strip()}"

    def read_until(self, text: str) -> None:
        assert self.process.stderr is not None
        lines: list[str] = []
        for line in self.process.stderr:
            lines.append(line)
            if text in line:
                return
        pytest.fail(f"the server ended without saying {text!r}: {lines}")

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextmanager
def process(data: Path, port_file: Path, *options: str) -> Iterator[Process]:
    started = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(data), str(port_file), *options], stderr=subprocess.PIPE, text=True
    )
    try:
        yield Process(started, port_file)
    finally:
        started.kill()
        started.wait()
        assert started.stderr is not None
        started.stderr.close()


async def test_a_running_call_finishes_while_the_server_stops(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        health = health_pb2_grpc.HealthStub(served.channel)
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        encoder.hold()
        running = asyncio.ensure_future(served.embed("running"))
        await encoder.entered()
        stopping = asyncio.ensure_future(served.server.stop(PATIENCE_S))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        await refuses_new_calls(served)
        encoder.release()
        assert (await running).results[0].WhichOneof("outcome") == "embedding"
        await stopping
        with pytest.raises(Exception, match="closed"):
            served.app.catalog.list()


async def refuses_new_calls(served: Running) -> None:
    async def refused() -> bool:
        async with grpc.aio.insecure_channel(served.server.address) as channel:
            try:
                await embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed(embed_request(""))
            except grpc.aio.AioRpcError as error:
                return error.code() is grpc.StatusCode.UNAVAILABLE
            return False

    async with asyncio.timeout(PATIENCE_S):
        while not await refused():  # noqa: ASYNC110 - what is awaited is on the other side of the wire
            await asyncio.sleep(0)


async def test_calls_that_outlast_the_grace_are_cut_off(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.hold()
        running = asyncio.ensure_future(served.embed("running"))
        await encoder.entered()
        stopping = asyncio.ensure_future(served.server.stop(0.0))
        with pytest.raises(grpc.aio.AioRpcError):
            await running
        encoder.release()
        await stopping


async def test_a_port_in_use_is_one_clear_line(served: Running, tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "other", canary_interval_s=3600)
    encoder, catalog = open_data(tmp_path / "other", None, settings, FakeEncoder())
    second = GrpcServer(Application(encoder, catalog, settings), served.server.address)
    with pytest.raises(StartError, match="port is in use") as caught:
        await second.start()
    await second.stop(0)
    assert served.server.address in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_port_file_that_cannot_be_written_is_one_clear_line(data: Path, tmp_path: Path) -> None:
    settings = Settings(data=data, port=0, port_file=tmp_path / "missing" / "port", canary_interval_s=3600)
    with pytest.raises(StartError, match=r"the port file .*missing/port cannot be written: No such file or directory$"):
        serve(settings, encoder=FakeEncoder())


def test_sigterm_ends_with_exit_code_0(data: Path, tmp_path: Path) -> None:
    with process(data, tmp_path / "port") as server:
        assert server.end(signal.SIGTERM) == 0
    with process(data, tmp_path / "port") as server:
        assert server.end(signal.SIGINT) == 0


LOADING = """
import sys, threading
from twinlens.__main__ import main
from twinlens.server import serve

def load(*_):
    print("loading", file=sys.stderr, flush=True)
    threading.Event().wait(60)

serve.open_data = load
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("number", "code", "line"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_while_the_model_is_loaded_or_measured_ends_at_once(
    number: signal.Signals, code: int, line: str, data: Path
) -> None:
    command = [sys.executable, "-c", LOADING, "serve", "--data", str(data)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr is not None
        assert started.stderr.readline() == "loading\n"
        started.send_signal(number)
        _, told = started.communicate(timeout=PATIENCE_S)
        assert (started.returncode, told) == (code, f"twinlens: {line}\n")


def test_a_second_signal_ends_at_once(data: Path, tmp_path: Path) -> None:
    with process(data, tmp_path / "port", "hold") as server, grpc.insecure_channel(server.address) as channel:
        held = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed.future(embed_request("wait"))
        server.read_until("encoding")
        server.process.send_signal(signal.SIGTERM)
        server.read_until("stopping")
        assert server.end(signal.SIGTERM) == 128 + signal.SIGTERM
        assert held.exception() is not None


async def test_what_was_acknowledged_survives_kill_9(data: Path, tmp_path: Path) -> None:
    with process(data, tmp_path / "port") as server:
        acknowledged: set[str] = set()
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = collection_pb2_grpc.CollectionServiceStub(channel)
            await stub.CreateCollection(collection_pb2.CreateCollectionRequest(collection="photos"))

            async def write(writer: int) -> None:
                for round_number in range(10_000):
                    ids = [f"{writer}-{round_number}-{i}" for i in range(5)]
                    items = [collection_pb2.NewItem(id=name, caption=f"caption {name}") for name in ids]
                    request = collection_pb2.UpsertItemsRequest(collection="photos", items=items)
                    try:
                        reply = await stub.UpsertItems(iter([request]))
                    except grpc.aio.AioRpcError:
                        return
                    assert reply.stored_count == 5
                    acknowledged.update(ids)

            writers = [asyncio.ensure_future(write(writer)) for writer in range(4)]
            await until(lambda: len(acknowledged) >= 100)
            server.process.kill()
            await asyncio.gather(*writers)
        server.process.wait()
    async with run_server(data, FakeEncoder()) as again:
        stored = [item.id async for item in _all_items(again)]
        assert acknowledged <= set(stored)
        assert len(stored) == len(set(stored))
        described = await again.collections.GetCollection(collection_pb2.GetCollectionRequest(collection="photos"))
        assert described.collection.text_vector_count == len(stored)


async def _all_items(served: Running) -> AsyncIterator[collection_pb2.Item]:
    token = ""
    while True:
        page = await served.collections.ListItems(
            collection_pb2.ListItemsRequest(collection="photos", page_size=1000, page_token=token)
        )
        for item in page.items:
            yield item
        token = page.next_page_token
        if not token:
            return
