"""Encrypted connections, certificates of clients, and tokens, on a server that notes what it was shown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.certificates import Authority
from tests.support.failing_server import FailingServer, failing_server, serving
from twinlens.client import TlsFiles, TwinlensError


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@contextmanager
def secured(authority: Authority, *hosts: str, mutual: bool = False) -> Iterator[tuple[FailingServer, str]]:
    """A server with a certificate for `hosts`; `mutual`: it asks clients for theirs."""
    chain, key = authority.sign("server", *hosts)
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), chain.read_bytes())],
        root_certificates=authority.ca.read_bytes() if mutual else None,
        require_client_auth=mutual,
    )
    servicer = failing_server()
    with serving(servicer, "127.0.0.1:0", credentials) as port:
        yield servicer, f"127.0.0.1:{port}"


def test_a_server_whose_certificate_is_trusted_is_called(open_client: Callable[..., Any], authority: Authority) -> None:
    with (
        secured(authority, "127.0.0.1") as (servicer, target),
        open_client(target, tls=TlsFiles(ca=authority.ca), token="secret") as client,
    ):
        client.wait_ready()
        assert client.embed_texts(["a"]).vectors.tolist() == [[1.0]]
        assert servicer.metadata["authorization"] == "Bearer secret"


def test_the_name_of_the_certificate_may_be_another_than_the_host(
    open_client: Callable[..., Any], authority: Authority
) -> None:
    with secured(authority, "search.example.com") as (_, target):
        with open_client(target, tls=TlsFiles(ca=authority.ca, name="search.example.com")) as client:
            assert len(client.embed_texts(["a"]).vectors) == 1
        with open_client(target, tls=TlsFiles(ca=authority.ca), attempts=1) as client:
            assert "another name" in refusal(client)


def test_a_certificate_is_shown_where_it_is_asked_for(open_client: Callable[..., Any], authority: Authority) -> None:
    chain, key = authority.sign("client")
    with secured(authority, "127.0.0.1", mutual=True) as (_, target):
        with open_client(target, tls=TlsFiles(ca=authority.ca, cert=chain, key=key)) as client:
            assert len(client.embed_texts(["a"]).vectors) == 1
        with open_client(target, tls=TlsFiles(ca=authority.ca), attempts=1) as client:
            assert "a client's certificate?" in refusal(client)


def test_who_cannot_be_trusted_is_told_in_one_line_that_says_what_to_do(
    open_client: Callable[..., Any], authority: Authority, stranger: Authority
) -> None:
    with secured(authority, "127.0.0.1") as (servicer, target):
        with open_client(target, tls=TlsFiles(ca=stranger.ca), token="secret", attempts=1) as client:
            assert "not signed by an authority that is trusted here; --tls-ca" in refusal(client)
        with open_client(target, attempts=1) as client:
            assert "does it ask for TLS" in refusal(client)
        assert servicer.calls == 0
    with (
        serving(failing_server(), "127.0.0.1:0") as port,
        open_client(f"127.0.0.1:{port}", tls=TlsFiles(ca=authority.ca), attempts=1) as client,
    ):
        assert "does not speak TLS" in refusal(client)


def refusal(client: Any) -> str:
    with pytest.raises(TwinlensError) as caught:
        client.embed_texts(["a"])
    assert caught.value.code == "UNAVAILABLE"
    assert "\n" not in caught.value.message
    return str(caught.value)


def test_files_that_cannot_be_used_are_named_before_any_call(
    open_client: Callable[..., Any], authority: Authority, tmp_path: Path
) -> None:
    chain, key = authority.sign("client")
    _, locked = authority.sign("locked", password=b"secret")
    _, other = authority.sign("other")
    (tmp_path / "empty.pem").touch()
    for files, named in (
        (TlsFiles(ca=tmp_path / "missing.pem"), "missing.pem"),
        (TlsFiles(ca=tmp_path), str(tmp_path)),
        (TlsFiles(ca=tmp_path / "empty.pem"), "empty.pem"),
        (TlsFiles(ca=key), key.name),
        (TlsFiles(cert=chain), "give both"),
        (TlsFiles(key=key), "give both"),
        (TlsFiles(cert=chain, key=other), "is not the key of"),
        (TlsFiles(cert=chain, key=locked), "without a password"),
        (TlsFiles(cert=key, key=chain), key.name),
    ):
        with pytest.raises(TwinlensError) as caught:
            open_client("127.0.0.1:1", tls=files)
        assert caught.value.code == "INVALID_ARGUMENT"
        assert named in str(caught.value)


@pytest.mark.parametrize("token", ["", "two words", "broken\n", "umläut"])
def test_what_is_no_token_is_refused_at_once_and_not_shown(open_client: Callable[..., Any], token: str) -> None:
    with pytest.raises(TwinlensError) as caught:
        open_client("127.0.0.1:1", token=token)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert not token.strip() or token.strip() not in str(caught.value)


def test_no_token_no_header(open_client: Callable[..., Any]) -> None:
    servicer = failing_server()
    with serving(servicer, "127.0.0.1:0") as port, open_client(f"127.0.0.1:{port}") as client:
        client.embed_texts(["a"])
    assert "authorization" not in servicer.metadata


def test_every_kind_of_call_shows_the_token(open_client: Callable[..., Any]) -> None:
    servicer = failing_server()
    with serving(servicer, "127.0.0.1:0") as port, open_client(f"127.0.0.1:{port}", token="secret") as client:
        for call in (
            lambda: client.embed_texts(["a"]),
            lambda: client.upsert("photos", [_item()]),
            lambda: list(client.check_collection("photos")),
        ):
            servicer.metadata = {}
            call()
            assert servicer.metadata["authorization"] == "Bearer secret"


def _item() -> Any:
    from twinlens.client import NewItem

    return NewItem(caption="a")


def test_a_token_that_everyone_on_the_way_can_read_is_warned_of(
    open_client: Callable[..., Any], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    def warned(target: str, **options: Any) -> bool:
        caplog.clear()
        with caplog.at_level(logging.WARNING), open_client(target, token="secret-word", **options):
            pass
        assert "secret-word" not in caplog.text
        return "unencrypted" in caplog.text

    assert warned("search.example.com:50051")
    assert not warned("search.example.com:50051", tls=TlsFiles(ca=authority.ca))
    for here in ("127.0.0.1:50051", "localhost:50051", "[::1]:50051", "unix:/tmp/socket"):
        assert not warned(here)
