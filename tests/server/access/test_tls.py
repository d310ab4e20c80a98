"""TLS, with certificates of clients and without."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from pathlib import Path

import grpc
import pytest

from tests.server.access.secured import bearer, secured, token_in
from tests.server.running import embed_request, refusal
from tests.server.watched import PATIENCE_S
from tests.support.certificates import Authority
from twinlens.server import grpc_server
from twinlens.server.access import certificates
from twinlens.server.access.certificates import CertificateError, CertificateFiles, Certificates
from twinlens.server.core.active import StartError
from twinlens.server.settings import SettingsError, load_settings
from twinlens.v1 import embedding_pb2_grpc


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def answers(address: str, credentials: grpc.ChannelCredentials | None, **metadata: str) -> bool:
    """Whether a server answers one who comes like that."""
    # A channel of its own: connections are shared between channels that look the same.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    channel = (
        grpc.aio.insecure_channel(address, options=options)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options=options)
    )
    async with channel:
        given = bearer(metadata["token"]) if metadata else ()
        try:
            await embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed(embed_request("red"), metadata=given)
        except grpc.aio.AioRpcError as error:
            return error.code() is not grpc.StatusCode.UNAVAILABLE
        return True


def credentials(ca: Path, files: tuple[Path, Path] | None = None) -> grpc.ChannelCredentials:
    chain, key = (None, None) if files is None else (files[0].read_bytes(), files[1].read_bytes())
    return grpc.ssl_channel_credentials(ca.read_bytes(), key, chain)


async def test_a_port_with_tls_answers_who_trusts_its_authority_and_nobody_in_the_clear(
    data: Path, authority: Authority, tmp_path: Path
) -> None:
    chain, key = authority.sign("server", "127.0.0.1")
    (tmp_path / "stranger").mkdir()
    stranger = Authority(tmp_path / "stranger")
    async with secured(data, tls_cert=chain, tls_key=key) as server:
        assert await answers(server.address, credentials(authority.ca))
        assert not await answers(server.address, credentials(stranger.ca))
        assert not await answers(server.address, None)


async def test_with_mutual_tls_only_certificates_of_the_authority_come_in(
    data: Path, authority: Authority, tmp_path: Path
) -> None:
    chain, key = authority.sign("server", "127.0.0.1")
    (tmp_path / "stranger").mkdir()
    stranger = Authority(tmp_path / "stranger")
    async with secured(data, tls_cert=chain, tls_key=key, tls_client_ca=authority.ca) as server:
        assert await answers(server.address, credentials(authority.ca, authority.sign("client")))
        assert not await answers(server.address, credentials(authority.ca))
        assert not await answers(server.address, credentials(authority.ca, stranger.sign("client")))


async def test_renewed_authorities_of_clients_are_taken_without_a_restart_and_none_at_all_are_not(
    data: Path, authority: Authority, tmp_path: Path
) -> None:
    chain, key = authority.sign("server", "127.0.0.1")
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    clients = tmp_path / "clients.pem"
    shutil.copyfile(authority.ca, clients)
    before, after = authority.sign("before"), other.sign("after")
    async with secured(data, tls_cert=chain, tls_key=key, tls_client_ca=clients) as server:
        assert await answers(server.address, credentials(authority.ca, before))
        for renewed in (other.ca, os.devnull):
            shutil.copyfile(renewed, clients)
            assert await answers(server.address, credentials(authority.ca, after))
            assert not await answers(server.address, credentials(authority.ca, before))
            assert not await answers(server.address, credentials(authority.ca))


async def test_tls_and_tokens_go_together(data: Path, authority: Authority, tmp_path: Path) -> None:
    chain, key = authority.sign("server", "127.0.0.1")
    tokens = tmp_path / "tokens.toml"
    token = token_in(tokens, "search", "read")
    async with secured(data, tls_cert=chain, tls_key=key, tokens=tokens) as server:
        assert await answers(server.address, credentials(authority.ca), token=token)
        async with grpc.aio.secure_channel(server.address, credentials(authority.ca)) as channel:
            embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
            assert (await refusal(embed(embed_request("red"))))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_who_connects_and_says_nothing_is_let_go(
    data: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "_HANDSHAKE_MS", 200)
    chain, key = authority.sign("server", "127.0.0.1")
    plain: dict[str, Path] = {}
    for files in (plain, {"tls_cert": chain, "tls_key": key}):
        async with secured(data, None, **files) as server, asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(*server.address.split(":"))
            while await reader.read(1024):
                pass
            writer.transport.abort()


async def test_a_renewed_certificate_is_taken_without_a_restart_and_a_broken_one_is_not(
    data: Path, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    chain, key = authority.sign("server", "127.0.0.1")
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    async with secured(data, tls_cert=chain, tls_key=key) as server:
        assert await answers(server.address, credentials(authority.ca))
        new_chain, new_key = other.sign("server", "127.0.0.1")
        new_key.replace(key)  # for a moment the key is another one's
        assert await answers(server.address, credentials(authority.ca))
        assert "does not belong to the certificate" in caplog.text
        new_chain.replace(chain)
        assert await answers(server.address, credentials(other.ca))
        assert not await answers(server.address, credentials(authority.ca))
        chain.unlink()
        assert await answers(server.address, credentials(other.ca))


def test_files_that_are_not_in_order_are_one_line(authority: Authority, tmp_path: Path) -> None:
    chain, key = authority.sign("server", "127.0.0.1")
    other_chain, _ = authority.sign("other", "127.0.0.1")
    _, locked = authority.sign("locked", "127.0.0.1", password=b"secret")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    nothing = tmp_path / "nothing.pem"
    nothing.touch()
    for files, why in (
        (CertificateFiles(tmp_path / "missing", key), "certificate .*missing cannot be read: No such file"),
        (CertificateFiles(chain, tmp_path / "missing"), "key .*missing cannot be read: No such file"),
        (CertificateFiles(other_chain, key), r"server\.key does not belong to the certificate .*other\.crt"),
        (CertificateFiles(nonsense, key), "both must be PEM"),
        (CertificateFiles(chain, nonsense), "both must be PEM"),
        (CertificateFiles(chain, locked), "must not be encrypted"),
        (CertificateFiles(chain, key, nonsense), "no certificates of authorities in .*nonsense"),
        (CertificateFiles(chain, key, nothing), "no certificates of authorities in .*nothing"),
        (CertificateFiles(chain, key, tmp_path / "none.pem"), "certificates of authorities .*cannot be read"),
    ):
        with pytest.raises(CertificateError, match=why) as caught:
            Certificates(files)
        assert "\n" not in str(caught.value)


def test_files_that_are_replaced_while_they_are_read_are_read_again(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = authority.sign("server", "127.0.0.1")
    files = CertificateFiles(chain, key)
    serving = Certificates(files)
    renewed = [authority.sign(name, "127.0.0.1") for name in ("second", "third")]

    def put(pair: tuple[Path, Path]) -> None:
        for source, target in zip(pair, (chain, key), strict=True):
            source.replace(target)

    put(renewed[0])
    read = certificates._content

    def replaced_after(path: Path, what: str) -> bytes:
        content = read(path, what)
        if path == chain:
            put(renewed[1])
        return content

    with monkeypatch.context() as patched:
        patched.setattr(certificates, "_content", replaced_after)
        assert serving.renewed() is None  # the second's certificate with the third's key
    assert serving.renewed() is not None
    assert serving.renewed() is None


async def test_a_server_whose_certificate_is_not_in_order_does_not_start(
    data: Path, authority: Authority, tmp_path: Path
) -> None:
    chain, _ = authority.sign("server", "127.0.0.1")
    with pytest.raises(StartError, match="cannot be read"):
        async with secured(data, tls_cert=chain, tls_key=tmp_path / "missing"):
            pass


def test_half_a_certificate_is_refused_by_the_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="both tls_cert and tls_key"):
        load_settings(tls_cert=tmp_path / "a")
    with pytest.raises(SettingsError, match="give tls_cert and tls_key, too"):
        load_settings(tls_client_ca=tmp_path / "a")
