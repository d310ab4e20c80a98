"""A host that answers HTTP with exactly the bytes a test wants, and notes what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawHost:
    """Attributes:
    port: Where it listens.
    answers: Path to what is sent back.
    asked: The heads of the requests, as they came.
    open: How many connections there are now, and `most`, how many there were at a time.
    """

    answers: Mapping[str, Answer]
    port: int = 0
    asked: list[bytes] = field(default_factory=list)
    open: int = 0
    most: int = 0

    @property
    def paths(self) -> list[str]:
        return [head.split()[1].decode() for head in self.asked]


async def _until_gone(answering: Awaitable[None], reader: asyncio.StreamReader) -> None:
    """Answers for as long as there is someone to read it."""
    tasks = {asyncio.ensure_future(answering), asyncio.ensure_future(reader.read())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return answer(b"", status, f"Location: {location}")


@asynccontextmanager
async def raw_host(
    answers: Mapping[str, Answer],
    *,
    machine: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    greeting: bytes = b"",
) -> AsyncIterator[RawHost]:
    """Listens while the block lasts; says `greeting` to whoever connects."""
    host = RawHost(answers)
    ends: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host.open += 1
        host.most = max(host.most, host.open)
        task = asyncio.current_task()
        assert task is not None
        ends.add(task)
        try:
            writer.write(greeting)
            head = await reader.readuntil(b"\r\n\r\n")
            host.asked.append(head)
            given = host.answers.get(head.split()[1].decode(), answer(b"", "404 Not Found"))
            if isinstance(given, bytes):
                writer.write(given)
                await writer.drain()
            else:
                await _until_gone(given(writer), reader)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            host.open -= 1
            ends.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, machine, port, ssl=tls)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        server.close()
        for task in list(ends):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*ends, return_exceptions=True)
