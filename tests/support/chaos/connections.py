"""Connections by the thousand, more of them than the server may open files, and connections that say nothing."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc

from tests.server.running import embed_request
from tests.support.chaos.callers import OK, calling
from tests.support.chaos.channels import own_channel
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.raw_http2 import RawCaller, raw_caller
from tests.support.chaos.server_process import ServerProcess, server_process
from tests.support.chaos.waiting import PATIENCE_S, eventually
from twinlens.server.descriptors import allow_many_files
from twinlens.v1 import embedding_pb2, embedding_pb2_grpc

_MIB = 2**20
# A crowd may be told to try again.
_FULL = (grpc.StatusCode.RESOURCE_EXHAUSTED,)
_EMBED = "/twinlens.v1.EmbeddingService/Embed"


def may_open(files: int) -> bool:
    """Raises this process's limit on open files as far as it may, and tells whether that is enough."""
    allow_many_files()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft == resource.RLIM_INFINITY or soft >= files


async def crowd(server: ServerProcess, *, connections: int = 1000, name: str = "crowd") -> Outcome:
    """Opens so many connections at once, each of which asks something and stays; some say nothing, some half a line.

    Raises:
        AssertionError: one of them or another caller is not answered, or the server does not come to rest after.
    """
    told: Counter[str] = Counter()
    before = server.memory_bytes()
    async with AsyncExitStack() as stack:
        callers = await stack.enter_async_context(
            calling(server.address, dimension=server.dimension, tolerated=_FULL, name=name)
        )
        for turn in range(connections // 10):
            raw: RawCaller = await stack.enter_async_context(raw_caller(server.address))
            if turn % 2:
                raw.write(b"PRI * HT")
        channels = [
            await stack.enter_async_context(own_channel(server.address)) for _ in range(connections - connections // 10)
        ]

        async def ask(channel: grpc.aio.Channel, number: int) -> None:
            stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)

            async def answered() -> bool:
                try:
                    await stub.Embed(embed_request(f"{name} {number}"), timeout=PATIENCE_S)
                except grpc.aio.AioRpcError as error:
                    told[error.code().name] += 1
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise
                    return False
                told[OK] += 1
                return True

            await eventually("an answer", answered)

        await asyncio.gather(*(ask(channel, number) for number, channel in enumerate(channels)))
        assert server.sockets() >= connections
        await callers.are_answered()
        grown = server.memory_bytes() - before
    told += callers.told
    await server.comes_to_rest()
    return Outcome(
        f"{connections:,} connections at once, a tenth of which say nothing",
        told,
        None,
        f"{grown / _MIB:.0f} MiB more meanwhile, all given up afterwards",
    )


async def files_run_out(folder: Path, *, files: int = 160) -> Outcome:
    """Lets a server open few files and connects to it until it has none left.

    Raises:
        AssertionError: whoever was connected before is not answered, or it takes nobody after there is room again.
    """
    with server_process(folder / "data", files=files) as server:
        async with calling(server.address) as callers:
            await callers.store()
            async with AsyncExitStack() as stack:
                for _ in range(2 * files):
                    await stack.enter_async_context(raw_caller(server.address))
                await callers.are_answered(30)
                await callers.store(6)
            back_s = await eventually("a new connection taken", server.serving)
        assert server.end() == 0
    return Outcome(
        f"{2 * files} connections where {files} files may be open",
        Counter(callers.told),
        1000 * back_s,
        "those connected before were answered all the while, new ones once there was room",
    )


async def idle(server: ServerProcess, *, idle_s: float = 100.0) -> Outcome:
    """Leaves connections alone: one that was used and has a stream open, one in half a message, one that never spoke.

    Raises:
        AssertionError: the first does not go on afterwards on the connection that it had.
    """
    told = await _used_again(server.address, idle_s)
    await server.comes_to_rest()
    return Outcome(
        f"connections idle for {idle_s:g} s", told, None, "calls and a stream went on over the same connection"
    )


async def _used_again(address: str, idle_s: float) -> Counter[str]:
    told: Counter[str] = Counter()
    async with own_channel(address) as channel, raw_caller(address) as silent, raw_caller(address) as half:
        stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)
        stream: Any = stub.EmbedStream()

        async def ask(text: str) -> None:
            await stub.Embed(embed_request(text), timeout=PATIENCE_S)
            await stream.write(embedding_pb2.EmbedStreamRequest(inputs=[embedding_pb2.EmbedInput(text=text)]))
            assert len((await stream.read()).results) == 1
            told[OK] += 2

        await ask("before")
        half.greet()
        half.send(half.begin(_EMBED), b"\0\0")
        await half.drain()
        states: list[grpc.ChannelConnectivity] = []

        async def watch() -> None:
            state = channel.get_state()
            while True:
                await channel.wait_for_state_change(state)
                state = channel.get_state()
                states.append(state)

        watching = asyncio.create_task(watch())
        await asyncio.sleep(idle_s)  # what is tried is that time passes
        await ask("after")
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert states == [], f"the connection did not stay: {states}"
        await stream.done_writing()
        silent.write(b"GET / HTTP/1.1\r\n\r\n")
        await silent.closed()
    return told
