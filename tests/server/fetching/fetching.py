"""A fetcher for which 127.0.0.1 stands for the internet, and every other machine for the inside."""

from __future__ import annotations

import asyncio
import ssl
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest

from tests.support.raw_host import RawHost
from twinlens.server.core.call import Call
from twinlens.server.core.fetch import Fetcher
from twinlens.server.core.fetching.errors import NotFetched
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.settings import Settings

CALL = Call("fetching")
OUTSIDE = "127.0.0.1"
INSIDE = "127.0.0.2"


def outside(address: IPv4Address | IPv6Address) -> bool:
    return address == ip_address(OUTSIDE)


class Names:
    """Looks up names; each look takes the next entry, the last one stays."""

    def __init__(self, **entries: list[list[str]]) -> None:
        self.entries = entries
        self.looks: list[str] = []

    async def __call__(self, host: str, _port: int) -> list[str]:
        self.looks.append(host)
        found = self.entries.get(host.partition(".")[0], [[OUTSIDE]])
        return found.pop(0) if len(found) > 1 else found[0]


class Fetching:
    """A fetcher for *.example.com on the port of a host."""

    def __init__(
        self, host: RawHost, names: Names | None = None, tls: ssl.SSLContext | None = None, **more: Any
    ) -> None:
        chosen = {"fetch_http": tls is None, **more}
        self.telemetry = Telemetry()
        self.names = names or Names()
        self.scheme = "http" if tls is None else "https"
        self.port = host.port
        settings = Settings(fetch_hosts=(f"*.example.com:{host.port}",), **chosen)
        self.fetcher = Fetcher(settings, self.telemetry, permits=outside, lookup=self.names, tls=tls)

    def url(self, path: str, name: str = "images") -> str:
        return f"{self.scheme}://{name}.example.com:{self.port}{path}"

    async def get(self, path: str, name: str = "images") -> bytes:
        return await self.fetcher.fetch(self.url(path, name), CALL)

    async def refusal(self, path: str, name: str = "images") -> str:
        with pytest.raises(NotFetched) as caught:
            await self.get(path, name)
        message = str(caught.value)
        assert "\n" not in message
        return message

    def count(self, outcome: str) -> float:
        value = self.telemetry.registry.get_sample_value("twinlens_fetches_total", {"outcome": outcome})
        return value or 0.0


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()
