"""Callers who do not read what they asked for, or read it slowly, and others who should not feel it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import grpc

from tests.support.chaos.callers import COLLECTION, OK, Callers, calling
from tests.support.chaos.channels import own_channel
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.raw_http2 import message, raw_caller
from tests.support.chaos.server_process import ServerProcess
from tests.support.chaos.waiting import eventually
from twinlens.v1 import (
    collection_operations_pb2,
    collection_operations_pb2_grpc,
    content_pb2,
    embedding_pb2,
    embedding_pb2_grpc,
)

_MIB = 2**20
# Of texts; each is answered by 64 vectors.
_INPUTS = 64
_MESSAGES = 20_000
# What answers that nobody reads may take, of all of them together: a few messages each in the transport and in work.
_MOST_GROWN_MIB = 128


async def slow_readers(server: ServerProcess, *, readers: int = 8) -> Outcome:
    """Streams that are written to without end and never read, while others call.

    Raises:
        AssertionError: the server goes on taking messages whose answers nobody reads, its memory grows, or others are
            not answered.
    """
    told, taken, grown_mib = await _read_slowly(server, readers)
    await server.comes_to_rest()
    return Outcome(
        f"{readers} streams written to and never read",
        told,
        None,
        f"{taken:,} messages of one stream were taken at most; {grown_mib:.0f} MiB more meanwhile",
    )


async def _read_slowly(server: ServerProcess, readers: int) -> tuple[Counter[str], int, float]:
    before = server.memory_bytes()
    taken = [0] * readers
    async with (
        own_channel(server.address) as channel,
        calling(server.address, dimension=server.dimension, name="beside readers") as callers,
    ):
        stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)
        streams: list[Any] = [stub.EmbedStream() for _ in range(readers)]

        async def write(number: int) -> None:
            for turn in range(_MESSAGES):
                await streams[number].write(_texts(number, turn))
                taken[number] += 1

        writing = [asyncio.create_task(write(number)) for number in range(readers)]
        await callers.are_answered(300)
        assert max(taken) < _MESSAGES, "the server took a whole stream whose answers nobody read"
        grown_mib = (server.memory_bytes() - before) / _MIB
        assert grown_mib < _MOST_GROWN_MIB, f"{grown_mib:.0f} MiB more for {sum(taken)} messages nobody read"
        # The slowest reader of all goes on: each message is answered, in order.
        for turn in range(3):
            reply = await streams[0].read()
            assert (reply.first_position, len(reply.results)) == (turn * _INPUTS, _INPUTS)
        for stream, task in zip(streams, writing, strict=True):
            stream.cancel()
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
    return Counter(callers.told), max(taken), grown_mib


async def exports_unread(server: ServerProcess, *, readers: int = 4) -> Outcome:
    """Exports that are asked for and left unread, then dropped.

    Raises:
        AssertionError: others are not answered, or the places of these operations stay taken.
    """
    told: Counter[str] = Counter()
    async with calling(server.address, dimension=server.dimension, name="beside exports") as callers:
        await callers.store(40)
        for _ in range(2):
            await _leave_unread(server.address, readers, callers)
            told[OK] += readers
    told += callers.told
    await server.comes_to_rest()
    return Outcome(f"{readers} exports left unread, twice", told, None, "the places they held were free again")


async def _leave_unread(address: str, readers: int, callers: Callers) -> None:
    request = collection_operations_pb2.ExportItemsRequest(
        collection=COLLECTION, modalities=[content_pb2.MODALITY_IMAGE, content_pb2.MODALITY_TEXT]
    )
    async with own_channel(address) as channel:
        stub = collection_operations_pb2_grpc.CollectionOperationsServiceStub(channel)
        exports: list[Any] = []

        async def begins() -> bool:
            """Whether there is a place: the server may not know yet that who had them is gone."""
            exports.append(stub.ExportItems(request))
            try:
                await exports[-1].read()
            except grpc.aio.AioRpcError as error:
                assert exports.pop().done()
                return error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED
            return True

        for _ in range(readers):
            await eventually("a place for an export", begins)
        assert len(exports) == readers
        await callers.are_answered(24)


async def no_window(server: ServerProcess, *, calls: int = 100) -> Outcome:
    """A connection that allows no byte of any answer, and asks for many.

    Raises:
        AssertionError: others are not answered, or the server does not come to rest once it is gone.
    """
    request = message(embedding_pb2.EmbedRequest(inputs=[embedding_pb2.EmbedInput(text="unread")]).SerializeToString())
    async with (
        calling(server.address, dimension=server.dimension, name="beside no window") as callers,
        raw_caller(server.address) as raw,
    ):
        raw.greet(window=0)
        for _ in range(calls):
            raw.send(raw.begin("/twinlens.v1.EmbeddingService/Embed"), request, end=True)
        await raw.drain()
        await callers.are_answered(60)
    await server.comes_to_rest()
    return Outcome(
        f"{calls} answers that may not be sent (flow-control window 0)", Counter(callers.told), None, "all given up"
    )


def _texts(number: int, turn: int) -> embedding_pb2.EmbedStreamRequest:
    inputs = [embedding_pb2.EmbedInput(text=f"text {position} of {turn} by {number}") for position in range(_INPUTS)]
    return embedding_pb2.EmbedStreamRequest(inputs=inputs)
