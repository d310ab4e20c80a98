"""Messages that are none, that lie about themselves, and that are large or too large."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import numpy as np
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import Default
from PIL import Image

from tests.server.running import embed_request, end_of
from tests.support.chaos.callers import OK, calling
from tests.support.chaos.channels import own_channel
from tests.support.chaos.faulty_encoder import SECRET
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.raw_http2 import message, raw_caller
from tests.support.chaos.server_process import ServerProcess
from tests.support.chaos.waiting import PATIENCE_S
from twinlens.server.grpc_server import SERVICES
from twinlens.v1 import embedding_pb2, embedding_pb2_grpc

_MIB = 2**20
# What a request that cannot be understood, or asks for what is not there, may be told.
_REFUSALS = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED"}
_EMBED = "/twinlens.v1.EmbeddingService/Embed"


def hostile_bytes(seed: int = 0) -> Iterator[bytes]:
    """Bytes that are no message, or one that nobody meant."""
    rng = np.random.default_rng(seed)
    yield b"\xff" * 16  # a tag without end
    yield b"\x0a\xff\xff\xff\xff\x07abc"  # a field of 2 GiB, of which three bytes are there
    yield b"\x0a\x02\xc3\x28"  # where it is a text: no UTF-8
    yield b"\x0b" * 300  # groups in groups, never closed
    yield b"\x08\x80"  # a number cut off
    yield b"\x0f"  # a kind of field there is not
    nested = b""
    for _ in range(300):  # deeper than parsers go
        nested = b"\x0a" + _varint(len(nested)) + nested
    yield nested
    yield b"\xfa\xff\x3f\x04meow" * 1000  # fields nobody knows
    for size in (1, 7, 64, 1000):
        yield rng.bytes(size)


async def malformed(server: ServerProcess) -> Outcome:
    """Sends hostile bytes to every method of every service, and worse than that to the port, while others call.

    Raises:
        AssertionError: an answer is anything but a refusal in one line that holds nothing of a parser, another caller
            is not answered, or something stays.
    """
    told: Counter[str] = Counter()
    methods = [method for name in SERVICES for method in Default().FindServiceByName(name).methods]
    async with (
        calling(server.address, dimension=server.dimension, name="beside malformed") as callers,
        own_channel(server.address) as channel,
    ):
        for method in methods:
            for data in hostile_bytes():
                try:
                    await _sent(channel, method, data)
                except grpc.aio.AioRpcError as error:
                    status, line = error.code().name, error.details() or ""
                    assert status in _REFUSALS, f"{method.full_name} of {data[:20]!r}: {status}: {line}"
                    assert "\n" not in line, line
                    assert not any(word in line for word in ("Traceback", "google", "Parse", SECRET)), line
                    told[status] += 1
                else:
                    told[OK] += 1
        for opening in (
            b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"\0" * 99,
        ):
            async with raw_caller(server.address) as raw:
                raw.write(opening)
                await raw.drain()
                told["cut off"] += 1
        await _broken_frames(server, told)
        await callers.are_answered(24)
    await server.comes_to_rest()
    return Outcome(
        f"malformed messages to {len(methods)} methods, broken HTTP/2",
        told + callers.told,
        None,
        "each refused in one line; no traceback, nothing stays",
    )


async def _sent(channel: grpc.aio.Channel, method: MethodDescriptor, data: bytes) -> None:
    service, _, name = method.full_name.rpartition(".")
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    call: Any = getattr(channel, kind)(f"/{service}/{name}")
    sent = call(_one(data) if method.client_streaming else data, timeout=PATIENCE_S)
    await (end_of(sent) if method.server_streaming else sent)


async def _one(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _broken_frames(server: ServerProcess, told: Counter[str]) -> None:
    good = embed_request("good").SerializeToString()
    for sent, answered in (
        (message(good, claimed=0xFFFFFFFF), True),  # 4 GiB to come
        (message(good, compressed=True), True),  # by a method that was not named
        (message(good) + message(good), True),  # two where one was to be
        # gRPC takes these for callers who gave up, and says nothing: they stay until their connection ends.
        (message(good, claimed=len(good) + 1), False),
        (b"", False),
    ):
        async with raw_caller(server.address) as raw:
            raw.greet()
            stream = raw.begin(_EMBED)
            raw.send(stream, sent, end=True)
            await raw.drain()
            if answered:
                assert await raw.answered(stream)
            told["cut off"] += 1
    async with raw_caller(server.address) as raw:
        raw.greet()
        stream = raw.begin("/twinlens.v1.EmbeddingService/NoSuchMethod")
        raw.send(stream, message(good), end=True)
        assert await raw.answered(stream)
        told["cut off"] += 1
    # Calls begun and given up at once, by the hundred (CVE-2023-44487).
    async with raw_caller(server.address) as raw:
        raw.greet()
        for _ in range(1000):
            stream = raw.begin(_EMBED)
            raw.send(stream, message(good), end=True)
            raw.reset(stream)
        await raw.drain()
        told["cut off"] += 1000


async def large_messages(server: ServerProcess, *, max_message_bytes: int) -> Outcome:
    """A picture of 5 MiB, many of them at once, and messages beyond the limit, which the caller does not keep to.

    Raises:
        AssertionError: the first is not answered rightly, the last with anything but RESOURCE_EXHAUSTED in one line, or
            the connection does not go on.
    """
    told: Counter[str] = Counter()
    large = _noise(5 * _MIB)
    assert len(large) > 5 * _MIB
    too_large = embed_request(b"\0" * (max_message_bytes + 1))
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    async with (
        calling(server.address, dimension=server.dimension, name="beside large") as callers,
        own_channel(server.address, options) as channel,
    ):
        stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)
        (alone,) = (await stub.Embed(embed_request(large), timeout=PATIENCE_S)).results
        assert alone.WhichOneof("outcome") == "embedding", alone

        async def send(request: embedding_pb2.EmbedRequest) -> str:
            try:
                reply = await stub.Embed(request, timeout=PATIENCE_S)
            except grpc.aio.AioRpcError as error:
                return _shown(error)
            assert reply.results[0] == alone
            return OK

        # Side by side on one connection.
        told.update(await asyncio.gather(*(send(embed_request(large)) for _ in range(8)), send(too_large)))
        told.update([await send(too_large), await send(embed_request(large))])
        assert told == Counter({OK: 9, "RESOURCE_EXHAUSTED": 2}), told
        await callers.are_answered()
    await server.comes_to_rest()
    return Outcome(
        f"pictures of 5 MiB, messages beyond the limit of {max_message_bytes // _MIB} MiB",
        told + callers.told,
        None,
        "the large ones answered, the too large refused, the connection went on",
    )


def _shown(error: grpc.aio.AioRpcError) -> str:
    line = error.details() or ""
    return error.code().name if line.isprintable() else f"not one line: {line}"


def _noise(size_bytes: int) -> bytes:
    side = int((size_bytes / 3) ** 0.5) + 1
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="BMP")
    return buffer.getvalue()


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
