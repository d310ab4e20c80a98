"""Hosts that misbehave. 127.0.0.1 stands for the internet here, every other machine for the inside."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import h11
import pytest

from tests.server.watched import until
from tests.support.certificates import Authority
from tests.support.raw_host import RawHost, answer, raw_host, redirect
from twinlens.server.core.call import Call
from twinlens.server.core.fetch import MAX_REDIRECTIONS, Fetcher
from twinlens.server.core.fetching.errors import NotFetched
from twinlens.server.core.lanes import Priority
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


async def test_a_picture_is_fetched_as_it_is() -> None:
    body = bytes(range(256)) * 1000
    async with raw_host({"/a.png?size=1": answer(body)}) as host:
        fetching = Fetching(host)
        assert await fetching.get("/a.png?size=1") == body
        assert fetching.count("ok") == 1
        (head,) = host.asked
        lines = head.decode().lower().split("\r\n")
        assert lines[0] == "get /a.png?size=1 http/1.1"
        assert f"host: images.example.com:{host.port}" in lines
        assert "accept-encoding: identity" in lines
        assert not any(line.startswith(("cookie", "authorization", "referer")) for line in lines)


async def test_chunks_and_bodies_without_a_length_are_read_to_their_end() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    async with raw_host({"/c": chunked, "/u": b"HTTP/1.0 200 OK\r\n\r\nuntil the end", "/e": early + chunked}) as host:
        fetching = Fetching(host)
        assert await fetching.get("/c") == b"abcde"
        assert await fetching.get("/u") == b"until the end"
        assert await fetching.get("/e") == b"abcde"


async def test_without_a_list_nothing_is_fetched() -> None:
    fetcher = Fetcher(Settings(), Telemetry())
    with pytest.raises(NotFetched, match="fetches no pictures"):
        await fetcher.fetch("https://images.example.com/a.png", CALL)
    await fetcher.close()


async def test_a_host_that_is_not_on_the_list_is_not_even_looked_up() -> None:
    async with raw_host({"/a": answer(b"x")}) as host:
        fetching = Fetching(host)
        for url in (
            f"http://127.0.0.1:{host.port}/a",
            f"http://localhost:{host.port}/a",
            f"http://2130706433:{host.port}/a",
            f"http://[::ffff:127.0.0.1]:{host.port}/a",
            f"http://example.com:{host.port}/a",
            f"http://images.example.com.evil.test:{host.port}/a",
            "http://images.example.com/a",
            f"http://images.example.com:{host.port % 65535 + 1}/a",
        ):
            with pytest.raises(NotFetched, match="does not fetch from"):
                await fetching.fetcher.fetch(url, CALL)
        assert not fetching.names.looks
        assert not host.asked
        assert fetching.count("refused") == 8


@pytest.mark.parametrize(
    "machine", [INSIDE, "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fd00:ec2::254", "fe80::1"]
)
async def test_a_listed_name_that_leads_inside_is_refused(machine: str) -> None:
    async with raw_host({"/a": answer(b"secret")}, machine=INSIDE) as host:
        fetching = Fetching(host, Names(images=[[machine]]))
        message = await fetching.refusal("/a")
        assert "not on the public internet" in message
        assert machine not in message
        assert not host.asked


async def test_a_name_whose_address_changes_is_asked_at_the_one_that_was_checked() -> None:
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(raw_host({"/a": answer(b"public")}, machine=OUTSIDE))
        secret = raw_host({"/a": answer(b"secret")}, machine=INSIDE, port=host.port)
        inside = await stack.enter_async_context(secret)
        rebinding = Fetching(host, Names(images=[[OUTSIDE], [INSIDE]]))
        assert await rebinding.get("/a") == b"public"
        assert rebinding.names.looks == ["images.example.com"]
        both = Fetching(host, Names(images=[[INSIDE, OUTSIDE]]))
        assert await both.get("/a") == b"public"
        assert not inside.asked


async def test_redirections_are_followed_and_checked_like_the_first_address() -> None:
    answers: dict[str, Any] = {"/end": answer(b"here")}
    async with raw_host(answers) as host, raw_host({"/a": answer(b"secret")}, machine=INSIDE) as inside:
        fetching = Fetching(host, Names(trap=[[INSIDE]]))
        answers |= {
            "/relative": redirect("end"),
            "/absolute": redirect(fetching.url("/end", "other"), "308 Permanent Redirect"),
            "/loopback": redirect(f"http://127.0.0.1:{inside.port}/a"),
            "/metadata": redirect("http://169.254.169.254/latest/meta-data/"),
            "/mapped": redirect(f"http://[::ffff:127.0.0.2]:{inside.port}/a"),
            "/file": redirect("file:///etc/passwd"),
            "/user": redirect(fetching.url("/end").replace("://", "://user:secret@")),
            "/trap": redirect(fetching.url("/a", "trap")),
            "/port": redirect(f"http://images.example.com:{inside.port}/a"),
            "/smuggled": redirect("/end\\@evil.test"),
            "/broken": redirect("http://[::1"),
            "/round": redirect("/round"),
        }
        assert await fetching.get("/relative") == b"here"
        assert await fetching.get("/absolute") == b"here"
        for path in ("/loopback", "/metadata", "/mapped", "/file", "/user", "/port", "/smuggled", "/broken"):
            message = await fetching.refusal(path)
            assert message == "images.example.com redirects to an address that may not be fetched"
        assert "not on the public internet" in await fetching.refusal("/trap")
        assert "more than 5 times" in await fetching.refusal("/round")
        assert host.paths.count("/round") == MAX_REDIRECTIONS + 1
        assert not inside.asked


async def test_answers_that_are_no_picture_are_named() -> None:
    packed = gzip.compress(bytes(2**20))
    async with raw_host(
        {
            "/500": answer(b"stack trace of theirs", "500 Internal Server Error"),
            "/206": answer(b"x", "206 Partial Content"),
            "/gzip": answer(packed, "200 OK", "Content-Encoding: gzip"),
            "/transfer": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "/garbage": b"SSH-2.0-OpenSSH_9.6\r\n",
            "/nothing": b"",
            "/short": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
            "/lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            "/headers": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        }
    ) as host:
        fetching = Fetching(host)
        assert "answered with status 500" in await fetching.refusal("/500")
        assert "answered with status 206" in await fetching.refusal("/206")
        assert "compressed" in await fetching.refusal("/gzip")
        for path in ("/transfer", "/garbage", "/nothing", "/short", "/lengths", "/headers"):
            message = await fetching.refusal(path)
            assert "images.example.com" in message
            assert "SSH" not in message
        assert fetching.count("ok") == 0


async def test_a_body_that_is_too_large_is_left_unread() -> None:
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(bytes(2**16))
            await writer.drain()
            sent += 2**16

    async with raw_host({"/endless": endless, "/said": answer(bytes(10), "200 OK")[:-10], "/just": b""}) as host:
        host.answers = {
            **host.answers,
            "/said": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n",
            "/just": answer(bytes(1000)),
        }
        fetching = Fetching(host, fetch_max_bytes=1000)
        assert await fetching.get("/just") == bytes(1000)
        assert "larger than the 1,000 bytes" in await fetching.refusal("/said")
        assert "larger than the 1,000 bytes" in await fetching.refusal("/endless")
        await until(lambda: host.open == 0)
        assert sent < 2**24
        assert fetching.count("too_large") == 2


async def test_a_body_in_the_smallest_pieces_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = most = 0
    read = h11.Connection.next_event

    def counted(self: h11.Connection) -> Any:
        nonlocal pieces, most
        pieces += 1
        most = max(most, pieces)
        return read(self)

    async def others() -> None:
        nonlocal pieces
        while True:
            pieces = 0
            await asyncio.sleep(0)

    monkeypatch.setattr(h11.Connection, "next_event", counted)
    body = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n"
    async with raw_host({"/pieces": body}) as host:
        working = asyncio.ensure_future(others())
        assert await Fetching(host).get("/pieces") == b"x" * 20_000
        working.cancel()
    assert most < 1000


async def test_a_host_that_only_announces_an_answer_is_left() -> None:
    async def announcing(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await writer.drain()

    async with raw_host({"/announced": announcing}) as host:
        assert "does not speak HTTP as it should" in await Fetching(host).refusal("/announced")
        await until(lambda: host.open == 0)


async def drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def endless_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("slow", [drip, silent, endless_head])
async def test_a_slow_host_is_left_when_the_time_is_up(
    slow: Callable[[asyncio.StreamWriter], Awaitable[None]],
) -> None:
    async with raw_host({"/slow": slow}) as host:
        fetching = Fetching(host, fetch_timeout_s=0.2)
        assert "longer than the 0.2 s" in await fetching.refusal("/slow")
        assert fetching.count("timeout") == 1
        await until(lambda: host.open == 0)


async def test_a_host_that_is_slow_to_look_up_is_left_too() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    fetcher = Fetcher(Settings(fetch_hosts=("a.example",), fetch_timeout_s=0.1), Telemetry(), lookup=never)
    with pytest.raises(NotFetched, match="longer than"):
        await fetcher.fetch("https://a.example/", CALL)


async def test_a_fetch_ends_with_the_deadline_of_its_call() -> None:
    async with raw_host({"/slow": silent}) as host:
        fetching = Fetching(host, fetch_timeout_s=600)
        deadline = Call("late", asyncio.get_running_loop().time() + 0.1)
        with pytest.raises(NotFetched):
            await fetching.fetcher.fetch(fetching.url("/slow"), deadline)


async def test_so_many_pictures_are_fetched_at_a_time_and_bulk_work_takes_no_place_of_others() -> None:
    gate = asyncio.Event()

    async def held(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(answer(b"x"))
        await writer.drain()

    async with raw_host({"/held": held, "/now": answer(b"now")}) as host:
        fetching = Fetching(host, max_fetches=3)
        bulk = Call("bulk", priority=Priority.BULK)
        many = [asyncio.ensure_future(fetching.fetcher.fetch(fetching.url("/held"), bulk)) for _ in range(20)]
        await until(lambda: host.open == 3)
        assert await fetching.get("/now") == b"now"
        gate.set()
        assert await asyncio.gather(*many) == [b"x"] * 20
        assert host.most <= 4


async def test_a_caller_who_leaves_ends_the_fetch() -> None:
    async with raw_host({"/slow": silent}) as host:
        fetching = Fetching(host, max_fetches=1)
        task = asyncio.ensure_future(fetching.get("/slow"))
        await until(lambda: host.open == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: host.open == 0)
        host.answers = {"/a": answer(b"x")}
        assert await fetching.get("/a") == b"x"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.ca))


def serving(files: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


async def test_https_checks_the_certificate_against_the_name_and_not_the_machine(authority: Authority) -> None:
    good = serving(authority.sign("good", "images.example.com"))
    answers: Mapping[str, Any] = {"/a": answer(b"safe")}
    async with raw_host(answers, tls=good) as host:
        fetching = Fetching(host, tls=trusting(authority))
        assert await fetching.get("/a") == b"safe"
        assert "no certificate that this server trusts" in await fetching.refusal("/a", "other")
        strangers = Fetching(host, tls=ssl.create_default_context())
        assert "no certificate that this server trusts" in await strangers.refusal("/a")
    async with raw_host(answers, greeting=b"SSH-2.0-OpenSSH_9.6\r\n") as plain:
        assert "does not speak TLS" in await Fetching(plain, tls=trusting(authority)).refusal("/a")


async def test_https_is_not_redirected_to_http(authority: Authority) -> None:
    answers: dict[str, Any] = {}
    tls = serving(authority.sign("good", "images.example.com"))
    async with raw_host(answers, tls=tls) as host:
        fetching = Fetching(host, tls=trusting(authority), fetch_http=True)
        answers["/a"] = redirect(fetching.url("/b").replace("https", "http"))
        assert "redirects from https:// to http://" in await fetching.refusal("/a")
        assert host.paths == ["/a"]


async def test_a_host_that_takes_no_connection_or_has_no_address_is_named(unused_tcp_port: int) -> None:
    fetching = Fetching(RawHost({}, port=unused_tcp_port))
    assert await fetching.refusal("/a") == "images.example.com takes no connection"

    async def unknown(host: str, port: int) -> list[str]:
        raise OSError("Name or service not known, said 10.0.0.53")

    fetching.fetcher._lookup = unknown
    assert await fetching.refusal("/a") == "the host images.example.com is not known"


async def test_the_system_is_asked_for_the_addresses_of_a_host() -> None:
    fetcher = Fetcher(Settings(fetch_hosts=("localhost:1",), fetch_http=True), Telemetry())
    with pytest.raises(NotFetched, match="not on the public internet"):
        await fetcher.fetch("http://localhost:1/a", CALL)
    await fetcher.close()
