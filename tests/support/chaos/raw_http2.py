"""HTTP/2 by hand (RFC 9113), for what no gRPC library would send."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum

from tests.support.chaos.waiting import PATIENCE_S

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
END_STREAM = 0x1
ACK = 0x1
_END_HEADERS = 0x4
_INITIAL_WINDOW_SIZE = 0x4
_MOST_A_FRAME = 16_384
_CANCEL = 8


class Kind(IntEnum):
    """Of frames."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it came in."""

    kind: int
    flags: int
    stream: int
    content: bytes


def message(content: bytes, *, claimed: int | None = None, compressed: bool = False) -> bytes:
    """A gRPC message with its prefix, which may lie about the length."""
    return struct.pack(">BI", compressed, len(content) if claimed is None else claimed) + content


class RawCaller:
    """One connection; streams are numbered by `begin`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next_stream = 1

    def greet(self, *, window: int = 65_535) -> None:
        """Begins HTTP/2; answers may take `window` bytes a stream until they are allowed more, which never happens."""
        self._writer.write(_PREFACE)
        self._frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, window))

    def write(self, data: bytes) -> None:
        """Any bytes."""
        self._writer.write(data)

    async def drain(self) -> None:
        """Waits until the socket has taken what was written."""
        await self._writer.drain()

    def begin(self, method: str, *, headers: tuple[tuple[str, str], ...] = (), end: bool = False) -> int:
        """Begins a call of `/package.Service/Method`, and returns its stream."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        sent = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *headers,
        )
        self._frame(Kind.HEADERS, _END_HEADERS | (END_STREAM if end else 0), stream, b"".join(map(_literal, sent)))
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Sends bytes of a stream, whether or not the other side allows for them."""
        parts = [data[i : i + _MOST_A_FRAME] for i in range(0, len(data), _MOST_A_FRAME)] or [b""]
        for number, part in enumerate(parts, 1):
            self._frame(Kind.DATA, END_STREAM if end and number == len(parts) else 0, stream, part)

    def ping(self, content: bytes) -> None:
        """Asks for an answer of the same eight bytes."""
        self._frame(Kind.PING, 0, 0, content)

    def reset(self, stream: int) -> None:
        """Gives a call up."""
        self._frame(Kind.RST_STREAM, 0, stream, struct.pack(">I", _CANCEL))

    def vanish(self) -> None:
        """Cuts the connection as the system does for a process that is killed with unread bytes: by a reset."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def answered(self, stream: int) -> bool:
        """Waits for the end of a stream.

        Returns:
            False if the connection ended instead, which answers everything on it.
        """
        async with asyncio.timeout(PATIENCE_S):
            while (frame := await self.read()) is not None:
                if frame.kind == Kind.GOAWAY:
                    return False
                if frame.stream == stream and (
                    frame.kind == Kind.RST_STREAM
                    or (frame.kind in {Kind.DATA, Kind.HEADERS} and frame.flags & END_STREAM)
                ):
                    return True
        return False

    async def closed(self) -> None:
        """Waits until the other side has closed the connection, whatever it sends before."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                while await self._reader.read(65_536):
                    pass
            except ConnectionError:
                return

    async def read(self) -> Frame | None:
        """The next frame, None where the connection was closed; what is set and pings are acknowledged."""
        try:
            head = await self._reader.readexactly(9)
            content = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        frame = Frame(head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, content)
        if frame.kind in {Kind.SETTINGS, Kind.PING} and not frame.flags & ACK:
            self._frame(Kind(frame.kind), ACK, 0, content if frame.kind == Kind.PING else b"")
        return frame

    def _frame(self, kind: Kind, flags: int, stream: int, content: bytes) -> None:
        head = len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
        self._writer.write(head + content)


@asynccontextmanager
async def raw_caller(address: str) -> AsyncIterator[RawCaller]:
    """A connection of plain TCP, on which nothing was said yet."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield RawCaller(reader, writer)
    finally:
        writer.transport.abort()


def _literal(header: tuple[str, str]) -> bytes:
    """A header as HPACK's literal without indexing and with a new name (RFC 7541, section 6.2.2)."""
    name, value = (part.encode() for part in header)
    assert max(len(name), len(value)) < 127
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value
