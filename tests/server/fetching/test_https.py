"""Pictures that are fetched by https."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.server.fetching.fetching import Fetching
from tests.support.certificates import Authority
from tests.support.raw_host import answer, raw_host, redirect


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
