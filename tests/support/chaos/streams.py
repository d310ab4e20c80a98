"""Streams that are half closed, never closed, cut in the middle of a message, or whose caller is gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from tests.server.running import end_of
from tests.support.chaos.callers import COLLECTION, OK, assert_kept, cached_picture, calling
from tests.support.chaos.channels import own_channel
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.raw_http2 import message, raw_caller
from tests.support.chaos.server_process import ServerProcess, server_process
from twinlens.v1 import (
    classification_pb2,
    classification_pb2_grpc,
    collection_pb2,
    collection_pb2_grpc,
    embedding_pb2,
    embedding_pb2_grpc,
)

_ENDLESS_S = 0.3
_EMBED_STREAM = "/twinlens.v1.EmbeddingService/EmbedStream"
_CLASSIFY_STREAM = "/twinlens.v1.ClassificationService/ClassifyStream"
_UPSERT = "/twinlens.v1.CollectionService/UpsertItems"

_TEXTS = embedding_pb2.EmbedStreamRequest(inputs=[embedding_pb2.EmbedInput(text=f"text {n}") for n in range(32)])
_SETUP = classification_pb2.ClassifyStreamRequest(setup=classification_pb2.ClassifyRequest(labels=["red", "green"]))
_PICTURES = classification_pb2.ClassifyStreamRequest(images=[cached_picture("red")] * 8)


def _items(name: str) -> collection_pb2.UpsertItemsRequest:
    items = [collection_pb2.NewItem(id=f"{name}-{n}", caption=f"caption {n}") for n in range(80)]
    return collection_pb2.UpsertItemsRequest(collection=COLLECTION, items=items)


async def half_closed(server: ServerProcess) -> Outcome:
    """Every streaming method, closed by its caller before, in and after its messages, and not at all.

    Raises:
        AssertionError: a call is answered wrongly or left without an answer, or something of it stays.
    """
    told = await _close_halves(server.address)
    # Closed in the middle of a message that promises more.
    async with raw_caller(server.address) as raw:
        raw.greet()
        first: dict[str, Message] = {_EMBED_STREAM: _TEXTS, _CLASSIFY_STREAM: _SETUP, _UPSERT: _items("cut")}
        for method_name, sent in first.items():
            whole = message(sent.SerializeToString())
            for bytes_sent in (3, 5, len(whole) // 2, len(whole) - 1):
                cut = raw.begin(method_name)
                raw.send(cut, whole[:bytes_sent], end=True)
                assert await raw.answered(cut), "the connection was given up for one of its calls"
                told["cut off"] += 1
    await server.comes_to_rest()
    return Outcome(
        "streams closed before, in and after a message, and never",
        told,
        None,
        "each was answered where it could be; nothing of them stays",
    )


async def _close_halves(address: str) -> Counter[str]:
    told: Counter[str] = Counter()
    async with own_channel(address) as channel:
        embedding = embedding_pb2_grpc.EmbeddingServiceStub(channel)
        classification = classification_pb2_grpc.ClassificationServiceStub(channel)
        collections = collection_pb2_grpc.CollectionServiceStub(channel)
        await collections.CreateCollection(collection_pb2.CreateCollectionRequest(collection="half-closed"))

        # Closed before the first message.
        methods: list[Any] = [embedding.EmbedStream, classification.ClassifyStream, collections.UpsertItems]
        for method in methods:
            told[await _told(method(_none()))] += 1
        assert not told.keys() - {OK, "INVALID_ARGUMENT"}, told

        # Closed at once after the messages, and read only then.
        stream: Any = embedding.EmbedStream()
        for _ in range(3):
            await stream.write(_TEXTS)
        await stream.done_writing()
        sizes = [len(reply.results) async for reply in stream]
        assert sizes == [32] * 3
        labelled: Any = classification.ClassifyStream()
        for request in (_SETUP, _PICTURES, _PICTURES):
            await labelled.write(request)
        await labelled.done_writing()
        assert [len(reply.results) async for reply in labelled] == [0, 8, 8]
        told[OK] += 2

        # Never closed: the deadline ends it, on both sides.
        for method in methods:
            endless = method(timeout=_ENDLESS_S)
            if method == classification.ClassifyStream:
                await endless.write(_SETUP)
            told[await _told(endless)] += 1
        assert told["DEADLINE_EXCEEDED"] == 3, told
    return told


async def callers_vanish(server: ServerProcess, *, callers_gone: int = 24) -> Outcome:
    """Connections reset in the middle of streams that embed, label and store, while others call.

    Raises:
        AssertionError: others are not answered, or items, tasks or connections of those who are gone stay.
    """
    requests: dict[str, list[Message]] = {
        _EMBED_STREAM: [_TEXTS] * 20,
        _CLASSIFY_STREAM: [_SETUP, *[_PICTURES] * 20],
        _UPSERT: [_items(f"vanished {n}") for n in range(4)],
    }
    async with calling(server.address, dimension=server.dimension, name="beside vanishing") as callers:
        for number in range(callers_gone):
            method, messages = list(requests.items())[number % len(requests)]
            async with raw_caller(server.address) as raw:
                raw.greet()
                stream = raw.begin(method)
                for request in messages:
                    raw.send(stream, message(request.SerializeToString()))
                # Half a message more.
                raw.send(stream, message(b"\0" * 400, claimed=5_000))
                await raw.drain()
                await callers.are_answered(1 + number % 5)
                raw.vanish()
        await callers.are_answered()
    await server.comes_to_rest()
    return Outcome(
        f"{callers_gone} callers cut off in the middle of a stream",
        Counter(callers.told),
        None,
        "nothing of them stays",
    )


async def ended_among_streams(folder: Path) -> Outcome:
    """SIGTERM while streams are open on which nothing happens, and others call.

    Raises:
        AssertionError: it does not end in order within the grace, or something acknowledged is gone.
    """
    gone = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    with server_process(folder / "data") as server:
        async with (
            calling(server.address, tolerated=gone) as callers,
            own_channel(server.address) as channel,
        ):
            streams: list[Any] = [embedding_pb2_grpc.EmbeddingServiceStub(channel).EmbedStream() for _ in range(8)]
            for stream in streams:
                await stream.write(_TEXTS)
                assert len((await stream.read()).results) == 32
            await callers.store()
            loop = asyncio.get_running_loop()
            start_s = loop.time()
            assert await asyncio.to_thread(server.end) == 0
            ended_s = loop.time() - start_s
            for stream in streams:
                stream.cancel()
        complaints = server.complaints()
        assert not complaints, complaints
        server.start()
        kept = await assert_kept(server.address, callers)
        assert server.end() == 0
    return Outcome(
        "SIGTERM with 8 open streams and under load",
        Counter(callers.told),
        None,
        f"exit code 0 after {ended_s:.1f} s; all of {kept:,} acknowledged items",
    )


async def _told(call: Any) -> str:
    try:
        await (end_of(call) if hasattr(call, "__aiter__") else call)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return OK


async def _none() -> AsyncIterator[Any]:
    nothing: tuple[Any, ...] = ()
    for each in nothing:
        yield each
