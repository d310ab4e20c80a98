"""A client that speaks as much of HTTP/2 (RFC 9113) as it takes to misbehave, without a gRPC library's good manners."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7
END_STREAM = ACK = 0x1
END_HEADERS = 0x4

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it came in."""

    kind: int
    flags: int
    stream: int
    payload: bytes


class Http2Peer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> None:
        """Sends a frame, whether or not it is allowed."""
        self._writer.write(struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream))
        self._writer.write(payload)
        await self._writer.drain()

    async def begin_call(self, method: str, *, stream: int = 1) -> None:
        """Opens a gRPC call: "/package.Service/Method"."""
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        block = b"".join(_literal(name, value) for name, value in headers.items())
        await self.send(HEADERS, block, flags=END_HEADERS, stream=stream)

    async def send_message(self, message: bytes, *, stream: int = 1, last: bool = True) -> None:
        """Sends one gRPC message."""
        flags = END_STREAM if last else 0
        await self.send(DATA, struct.pack(">?I", False, len(message)) + message, flags=flags, stream=stream)

    async def read(self) -> Frame:
        """The next frame; what the peer sets is acknowledged.

        Raises:
            asyncio.IncompleteReadError: the connection was closed.
        """
        head = await self._reader.readexactly(9)
        payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        frame = Frame(head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, payload)
        if frame.kind == SETTINGS and not frame.flags & ACK:
            await self.send(SETTINGS, flags=ACK)
        return frame


@asynccontextmanager
async def http2_peer(address: str) -> AsyncIterator[Http2Peer]:
    """Connects to "host:port" and says hello."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(_PREFACE)
        peer = Http2Peer(reader, writer)
        with suppress(ConnectionError):  # closed already: whoever reads learns of it
            await peer.send(SETTINGS)
        yield peer
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def _literal(name: str, value: str) -> bytes:
    """A header field without indexing and without Huffman coding (RFC 7541, 6.2.2); both are shorter than 127 bytes."""
    parts = [text.encode("ascii") for text in (name, value)]
    return b"\0" + b"".join(bytes((len(part),)) + part for part in parts)
