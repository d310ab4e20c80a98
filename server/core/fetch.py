"""Fetching pictures that callers name by their address, from hosts that the server is set to trust."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urljoin

from twinlens.server.core.call import Call
from twinlens.server.core.fetching.address import Address, read_address
from twinlens.server.core.fetching.errors import Fetched, NotFetched
from twinlens.server.core.fetching.exchange import ask
from twinlens.server.core.fetching.hosts import HostList
from twinlens.server.core.fetching.lost_time import LostTime
from twinlens.server.core.fetching.public_network import is_public
from twinlens.server.core.lanes import Priority
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.settings import Settings

MAX_REDIRECTIONS = 5
# A name server that does not answer holds a thread for half a minute; these hold nobody else up.
_LOOKUP_THREADS = 4
_MACHINES_TRIED = 4
# Where few are fetched at a time, so many that get no answer are no sign of a dead host yet.
_FEW = 4

Lookup = Callable[[str, int], Awaitable[list[str]]]


class Fetcher:
    """Fetches pictures.

    Every address, also one that a redirection leads to, has to name a host of the list; the name is looked up once, and
    the connection goes to an address that was found to be public. So neither a redirection nor a name whose address
    changes between two looks ("DNS rebinding") leads inside.

    Args:
        settings: Hosts, schemes, limits.
        telemetry: Counts what became of fetches.
        permits: Which machines may be asked.
        lookup: Finds a host's IP addresses, given its name and the port.
        tls: For https; the default trusts what the system trusts.

    Raises:
        ModuleNotFoundError: where hosts are listed and the extra `fetch` is not installed.
    """

    def __init__(
        self,
        settings: Settings,
        telemetry: Telemetry,
        *,
        permits: Callable[[IPv4Address | IPv6Address], bool] = is_public,
        lookup: Lookup | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._hosts = HostList(settings.fetch_hosts)
        self._http = settings.fetch_http
        self._timeout_s = settings.fetch_timeout_s
        self._max_bytes = settings.fetch_max_bytes
        self._lost_s = max(_FEW, settings.max_fetches) * settings.fetch_timeout_s
        self._count = telemetry.fetches.labels
        self._permits = permits
        self._lookup = lookup or self._look_up
        self._pool: WorkerPool | None = None
        self._tls = tls
        # Bulk calls have room of their own, so that a list of a thousand addresses does not hold up a search.
        self._room = {
            priority: asyncio.Semaphore(settings.max_fetches)
            for priority in (Priority.URGENT, Priority.INTERACTIVE, Priority.BULK)
        }
        if self._hosts:
            import h11  # noqa: F401, PLC0415 - of an extra: told now instead of with the first picture

            self._tls = tls or ssl.create_default_context()

    def lost_time(self) -> LostTime:
        """For one call: a host that lets it wait in vain takes it no longer than two pictures may."""
        return LostTime(self._lost_s)

    async def fetch(self, url: str, call: Call) -> bytes:
        """The bytes of a picture.

        Raises:
            NotFetched: one line saying why there are none.
        """
        async with self.held(url, call) as data:
            return data

    @asynccontextmanager
    async def held(self, url: str, call: Call, lost: LostTime | None = None) -> AsyncIterator[bytes]:
        """The bytes of a picture, for as long as the block lasts: so many pictures exist at a time and no more.

        Args:
            url: Its address.
            call: Who asks.
            lost: Of this call; None: a host is asked whatever it cost before.

        Raises:
            NotFetched: one line saying why there are none.
        """
        address = self._checked(url)
        async with self._room[call.priority]:
            yield await self._within(address, call, lost or self.lost_time())

    async def close(self) -> None:
        """Lets go of the threads."""
        if self._pool is not None:
            await asyncio.to_thread(self._pool.close, 0.0)

    async def _within(self, address: Address, call: Call, lost: LostTime) -> bytes:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_s
        if call.deadline_s is not None:
            until_s = min(until_s, call.deadline_s)
        try:
            with lost.counted(address.host):
                try:
                    async with asyncio.timeout_at(until_s):
                        data = await self._follow(address)
                except TimeoutError:
                    took = f"took longer than the {self._timeout_s:g} s that a picture may take"
                    raise NotFetched(f"{address.host} {took}", Fetched.TIMEOUT) from None
        except NotFetched as error:
            self._count(error.outcome.value).inc()
            raise
        self._count(Fetched.OK.value).inc()
        return data

    async def _follow(self, address: Address) -> bytes:
        for _ in range(MAX_REDIRECTIONS + 1):
            assert self._tls is not None  # noqa: S101 - there are hosts
            answer = await ask(address, await self._machines(address), self._tls, self._max_bytes)
            if answer.location is None:
                return answer.body
            address = self._redirected(address, answer.location)
        raise NotFetched(f"the address was redirected more than {MAX_REDIRECTIONS} times", Fetched.ANSWER)

    def _checked(self, url: str) -> Address:
        try:
            address = read_address(url, http=self._http)
            self._check_host(address)
        except NotFetched as error:
            self._count(error.outcome.value).inc()
            raise
        return address

    def _redirected(self, address: Address, location: str) -> Address:
        here = f"{address.scheme}://{address.authority}{address.target}"
        try:
            after = read_address(urljoin(here, location) if location.isprintable() else location, http=self._http)
            self._check_host(after)
        except (NotFetched, ValueError):
            # Where to is not told: it is what the other server said, and perhaps a probe of what lies behind this one.
            raise NotFetched(f"{address.host} redirects to an address that may not be fetched") from None
        if address.scheme == "https" and after.scheme == "http":
            raise NotFetched(f"{address.host} redirects from https:// to http://")
        return after

    def _check_host(self, address: Address) -> None:
        if not self._hosts:
            raise NotFetched("this server fetches no pictures; send the picture's bytes")
        if not self._hosts.allows(address.host, address.port, address.usual_port):
            raise NotFetched(
                f"this server does not fetch from {address.authority[:300]}; the setting fetch_hosts names the hosts"
            )

    async def _machines(self, address: Address) -> list[str]:
        try:
            found = await self._lookup(address.host, address.port)
        except (OSError, UnicodeError):
            raise NotFetched(f"the host {address.host} is not known", Fetched.UNREACHABLE) from None
        public = [machine for machine in found if self._permits(ip_address(machine))]
        if not public:
            raise NotFetched(f"{address.host} is not on the public internet, and nothing else is fetched")
        return public[:_MACHINES_TRIED]

    async def _look_up(self, host: str, port: int) -> list[str]:
        if self._pool is None:
            self._pool = WorkerPool("lookup", _LOOKUP_THREADS)
        found = await self._pool.submit(
            Priority.INTERACTIVE, socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        # A scope ("%eth0") belongs to link-local addresses, which `ip_address` would still read.
        return [str(entry[4][0]).partition("%")[0] for entry in found]
