"""Hosts that answer with anything but a picture, with too much, or not at all."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import h11
import numpy as np
import pytest

from tests.server.fetching.fetching import CALL, Fetching, silent
from tests.server.watched import until
from tests.support.raw_host import answer, raw_host
from twinlens.server.core.addressed import embed_addressed
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Input, Outcome, PictureAt
from twinlens.server.core.errors import Reason
from twinlens.server.core.fetch import Fetcher
from twinlens.server.core.fetching.errors import NotFetched
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.settings import Settings


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


async def embedded(inputs: Sequence[Input], call: Call) -> list[Outcome]:
    return [Outcome(vector=np.ones(2, np.float32))] * len(inputs)


async def messages(fetching: Fetching, urls: Sequence[str]) -> list[str]:
    """Why the pictures of one call were not fetched; "" for those that were."""
    outcomes = await embed_addressed([PictureAt(url) for url in urls], CALL, fetching.fetcher, embedded)
    failures = [outcome.failure for outcome in outcomes]
    assert {failure.reason for failure in failures if failure} <= {Reason.NOT_FETCHED}
    return ["" if failure is None else failure.message for failure in failures]


async def test_a_dead_host_costs_a_call_little_more_time_than_one_picture_and_the_others_come() -> None:
    async with raw_host({"/slow": silent, "/good": answer(b"x")}) as host:
        fetching = Fetching(host, max_fetches=4, fetch_timeout_s=0.5)
        many = 100
        urls = [fetching.url("/slow", "dead") for _ in range(many)] + [fetching.url("/good")] * 3
        *dead, first, second, third = await messages(fetching, urls)
        assert [first, second, third] == [""] * 3
        assert host.paths.count("/slow") <= 8  # one round of fetches, and those that were begun before it was over
        assert "longer than the 0.5 s" in dead[0]
        assert dead[-1] == "dead.example.com let this call wait in vain for others of its pictures and is left alone"
        assert fetching.count("timeout") + fetching.count("unreachable") == many
        (again,) = await messages(fetching, [fetching.url("/good", "dead")])
        assert again == ""  # another call asks anew


async def test_a_host_that_fails_quickly_is_asked_for_every_picture() -> None:
    async with raw_host({"/end": b"", "/good": answer(b"x")}) as host:
        fetching = Fetching(host, max_fetches=4)
        found = await messages(fetching, [fetching.url("/end"), fetching.url("/404")] * 50 + [fetching.url("/good")])
        assert len(host.asked) == 101
        assert found[-1] == ""
