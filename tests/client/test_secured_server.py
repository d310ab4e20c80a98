"""Both clients on a real server that asks for certificates and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.access.secured import secured, token_in
from tests.support.blocking import Blocking
from tests.support.certificates import Authority
from tests.support.pictures import solid
from twinlens.__main__ import main
from twinlens.client import AsyncClient, Client, NewItem, TextInput, TlsFiles, TwinlensError

Calls = Callable[[Any], None]


async def with_both(address: str, tls: TlsFiles | None, token: str | None, use: Calls) -> None:
    """Uses a client, and an asynchronous one made to block, in threads: the server runs in this loop."""

    def run(kind: Callable[..., Any]) -> None:
        with kind(address, tls=tls, token=token) as client:
            use(client)

    for kind in (Client, Blocking):
        await asyncio.to_thread(run, kind)


async def test_certificates_and_tokens_open_every_kind_of_call(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    chain, key = authority.sign("server", "search.example.com")
    mine, my_key = authority.sign("client")
    writer = token_in(tmp_path / "tokens.toml", "writer", "write")
    tls = TlsFiles(authority.ca, mine, my_key, "search.example.com")

    def use(client: Any) -> None:
        client.wait_ready()
        client.create_collection("photos", exist_ok=True)
        assert client.upsert("photos", [NewItem(id="red", image=solid("red"))]).stored == 1
        assert client.search("photos", text="red", top_k=1)[0].id == "red"
        assert [each.error for each in client.embed_stream([solid("red"), TextInput("red")])] == [None, None]
        assert [each.item.id for each in client.export_items("photos")] == ["red"]
        assert client.limits().max_inputs

    async with secured(
        tmp_path / "data", tls_cert=chain, tls_key=key, tls_client_ca=authority.ca, tokens=tmp_path / "tokens.toml"
    ) as server:
        await with_both(server.address, tls, writer, use)


async def test_who_may_not_is_told_why_in_one_line(tmp_path: Path) -> None:
    reader = token_in(tmp_path / "tokens.toml", "reader", "read")

    def refused(code: str, words: str) -> Calls:
        def use(client: Any) -> None:
            with pytest.raises(TwinlensError) as caught:
                client.upsert("photos", [NewItem(image=solid("red"))])
            assert caught.value.code == code
            assert words in str(caught.value)
            assert caught.value.request_id

        return use

    async with secured(tmp_path / "data", tokens=tmp_path / "tokens.toml") as server:
        await with_both(server.address, None, None, refused("UNAUTHENTICATED", "TWINLENS_TOKEN"))
        await with_both(server.address, None, "twl_wrong", refused("UNAUTHENTICATED", "--token-file"))
        await with_both(server.address, None, reader, refused("PERMISSION_DENIED", "write"))


async def test_a_token_over_its_rate_waits_as_it_is_told(tmp_path: Path) -> None:
    token = token_in(tmp_path / "tokens.toml", "busy", "write", rate=20.0)

    async with secured(tmp_path / "data", tokens=tmp_path / "tokens.toml") as server:
        async with AsyncClient(server.address, token=token) as client:
            await client.create_collection("photos")
            for number in range(45):
                report = await client.upsert("photos", [NewItem(id=str(number), caption="red")])
                assert report.stored == 1
        assert server.refused("rate") > 0


async def test_health_is_asked_like_everything_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(tmp_path)
    chain, key = authority.sign("server", "search.example.com")
    (tmp_path / "token").write_text(token_in(tmp_path / "tokens.toml", "probe", "read"))
    settings: dict[str, Any] = {"tls_cert": chain, "tls_key": key, "tokens": tmp_path / "tokens.toml"}
    async with secured(tmp_path / "data", open_health=False, **settings) as server:
        asked = ["health", "--server", server.address, "--tls-ca", str(authority.ca)]
        named = [*asked, "--tls-name", "search.example.com"]
        assert await asyncio.to_thread(main, [*named, "--token-file", str(tmp_path / "token")]) == 0
        assert capsys.readouterr().out == "SERVING\n"
        for lacking in (asked, named):
            assert await asyncio.to_thread(main, lacking) == 1
            assert len(capsys.readouterr().err.strip().splitlines()) == 1
