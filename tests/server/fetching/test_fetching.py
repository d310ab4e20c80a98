"""Which pictures are fetched, from where, and how many at a time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.server.fetching.fetching import CALL, INSIDE, OUTSIDE, Fetching, Names, silent
from tests.server.watched import until
from tests.support.raw_host import RawHost, answer, raw_host, redirect
from twinlens.server.core.call import Call
from twinlens.server.core.fetch import MAX_REDIRECTIONS, Fetcher
from twinlens.server.core.fetching.errors import NotFetched
from twinlens.server.core.lanes import Priority
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.settings import Settings


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
