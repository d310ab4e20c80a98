"""One question and one answer over HTTP/1.1, with a machine whose address was checked.

h11 reads and writes the messages. Nothing is reused between exchanges: no connection, cookie or proxy.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlens.server.core.fetching.address import Address
from twinlens.server.core.fetching.errors import Fetched, NotFetched

if TYPE_CHECKING:
    import h11

_READ_BYTES = 64 * 1024
_MOST_HEADER_BYTES = 32 * 1024
# A machine that does not take a connection is left for the host's next one.
_CONNECT_S = 5.0
# Answers before the answer, such as 103 Early Hints; hosts send one or two.
_MOST_HINTS = 16
# A body may come a byte at a time, thousands of them in what one reading brings.
_PIECES_A_TURN = 64
_REDIRECTIONS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: either the picture's bytes, or where to ask instead."""

    body: bytes = b""
    location: str | None = None


async def ask(address: Address, machines: Sequence[str], tls: ssl.SSLContext, max_bytes: int) -> Answer:
    """Gets what lies at an address.

    Args:
        address: What to ask for.
        machines: IP addresses to ask, in this order, until one takes the connection.
        tls: For https; the certificate must be the host's.
        max_bytes: A longer body is refused, where it is announced before any of it is read.

    Raises:
        NotFetched: for anything but a body, or a redirection.
    """
    reader, writer = await _connect(address, machines, tls)
    try:
        return await _exchange(address, reader, writer, max_bytes)
    except OSError:
        raise NotFetched(f"the connection to {address.host} broke off", Fetched.UNREACHABLE) from None
    finally:
        writer.transport.abort()  # whatever state it is in; nobody waits for a polite end


async def _connect(
    address: Address, machines: Sequence[str], tls: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    secure = address.scheme == "https"
    why = "takes no connection"
    for machine in machines:
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await asyncio.open_connection(
                    machine,
                    address.port,
                    limit=_READ_BYTES,
                    ssl=tls if secure else None,
                    server_hostname=address.host if secure else None,
                )
        except ssl.SSLCertVerificationError:
            why = "has no certificate that this server trusts"
        except ssl.SSLError:
            why = "does not speak TLS as it should"
        except OSError:  # also that it took too long
            continue
    raise NotFetched(f"{address.host} {why}", Fetched.UNREACHABLE)


async def _exchange(
    address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_bytes: int
) -> Answer:
    import h11  # noqa: PLC0415 - of an extra

    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEADER_BYTES)
    request = h11.Request(
        method="GET",
        target=address.target,
        headers=[
            ("Host", address.authority),
            ("User-Agent", "twinlens"),
            ("Accept", "image/*, */*;q=0.1"),
            ("Accept-Encoding", "identity"),
            ("Connection", "close"),
        ],
    )
    writer.write((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
    await writer.drain()
    try:
        hints = 0
        while isinstance(head := await _event(http, reader), h11.InformationalResponse):
            hints += 1
            if hints > _MOST_HINTS:
                raise _no_http(address)
        if not isinstance(head, h11.Response):
            raise NotFetched(f"{address.host} ended the connection without an answer", Fetched.UNREACHABLE)
        headers = {name.lower(): value for name, value in head.headers}
        if head.status_code in _REDIRECTIONS and b"location" in headers:
            return Answer(location=headers[b"location"].decode("latin-1"))
        if head.status_code != 200:
            raise NotFetched(f"{address.host} answered with status {head.status_code}", Fetched.ANSWER)
        if headers.get(b"content-encoding", b"identity").strip().lower() not in {b"identity", b""}:
            # A kilobyte may unpack to gigabytes, and pictures are compressed as they are.
            raise NotFetched(f"{address.host} sent a compressed answer, which is not unpacked", Fetched.ANSWER)
        announced = headers.get(b"content-length", b"0")
        if int(announced) > max_bytes:
            raise _too_large(max_bytes)
        body, pieces = bytearray(), 0
        while isinstance(event := await _event(http, reader), h11.Data):
            body += event.data
            if len(body) > max_bytes:
                raise _too_large(max_bytes)
            pieces += 1
            if pieces % _PIECES_A_TURN == 0:
                await asyncio.sleep(0)
        if not isinstance(event, h11.EndOfMessage):
            raise NotFetched(f"the connection to {address.host} broke off", Fetched.UNREACHABLE)
        return Answer(body=bytes(body))
    except h11.RemoteProtocolError:
        raise _no_http(address) from None


async def _event(http: h11.Connection, reader: asyncio.StreamReader) -> object:
    import h11  # noqa: PLC0415

    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await reader.read(_READ_BYTES))
    return event


def _no_http(address: Address) -> NotFetched:
    return NotFetched(f"{address.host} does not speak HTTP as it should", Fetched.ANSWER)


def _too_large(max_bytes: int) -> NotFetched:
    return NotFetched(f"the picture is larger than the {max_bytes:,} bytes that are fetched", Fetched.TOO_LARGE)
