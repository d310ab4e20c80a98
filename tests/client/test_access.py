"""How commands come by the token and the TLS files they show a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from tests.support.certificates import Authority
from tests.support.command_runs import Ran
from tests.support.failing_server import failing_server, serving
from twinlens.__main__ import COMMANDS, load
from twinlens.client import TlsFiles, TwinlensError
from twinlens.client.access import AccessOptions, access

Run = Callable[..., Ran]


def test_nothing_given_means_neither_token_nor_encryption() -> None:
    found = access(AccessOptions(), {})
    assert (found.token, found.tls) == (None, None)
    assert access(AccessOptions(), {"TWINLENS_TOKEN": "", "TWINLENS_TLS_CA": "", "TWINLENS_TLS": "0"}).tls is None


def test_the_environment_is_asked_where_options_are_left_out(tmp_path: Path) -> None:
    environ = {
        "TWINLENS_TOKEN": "of-the-environment",
        "TWINLENS_TLS_CA": "ca.pem",
        "TWINLENS_TLS_CERT": "cert.pem",
        "TWINLENS_TLS_KEY": "key.pem",
        "TWINLENS_TLS_NAME": "search.example.com",
    }
    found = access(AccessOptions(), environ)
    assert found.token == environ["TWINLENS_TOKEN"]
    assert found.tls == TlsFiles("ca.pem", "cert.pem", "key.pem", "search.example.com")
    (tmp_path / "token").write_text("of-the-file\n")
    found = access(AccessOptions(token_file=tmp_path / "token", tls_ca=Path("other.pem"), tls_name="other"), environ)
    assert found.token == (tmp_path / "token").read_text().strip()
    assert found.tls == TlsFiles(Path("other.pem"), "cert.pem", "key.pem", "other")
    assert "of-the-file" not in repr(found)


@pytest.mark.parametrize("on", ["1", "true", "YES", "on"])
def test_encryption_alone_trusts_the_public_authorities(on: str) -> None:
    assert access(AccessOptions(tls=True), {}).tls == TlsFiles()
    assert access(AccessOptions(), {"TWINLENS_TLS": on}).tls == TlsFiles()


def test_what_makes_no_sense_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for options, environ, named in (
        (AccessOptions(token_file=tmp_path / "missing"), {}, "missing"),
        (AccessOptions(token_file=tmp_path / "binary"), {}, "not text"),
        (AccessOptions(), {"TWINLENS_TLS": "maybe"}, "TWINLENS_TLS"),
    ):
        with pytest.raises(TwinlensError, match=named) as caught:
            access(options, environ)
        assert caught.value.code == "INVALID_ARGUMENT"


def test_every_command_that_takes_a_server_takes_them_and_no_other_does() -> None:
    def check(command: object, path: str) -> None:
        for name, each in getattr(command, "commands", {}).items():
            check(each, f"{path} {name}")
        options = {option for parameter in command.params for option in parameter.opts}  # type: ignore[attr-defined]
        wanted = {"--token-file", "--tls", "--tls-ca", "--tls-cert", "--tls-key", "--tls-name"}
        assert options & wanted == (wanted if "--server" in options else set()) or path == "serve", path

    for name in COMMANDS:
        if COMMANDS[name].module.startswith("twinlens.client"):
            check(load(name), name)


def test_commands_show_the_token_and_check_the_certificate(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    chain, key = authority.sign("server", "search.example.com")
    mine, my_key = authority.sign("client")
    (tmp_path / "token").write_text("secret\n")
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), chain.read_bytes())], authority.ca.read_bytes(), require_client_auth=True
    )
    servicer = failing_server()
    options = ("--tls-ca", authority.ca, "--tls-cert", mine, "--tls-key", my_key, "--tls-name", "search.example.com")
    with serving(servicer, "127.0.0.1:0", credentials) as port:
        command = ("collections", "check", "photos", "--server", f"127.0.0.1:{port}")
        ran = run(*command, *options, "--token-file", tmp_path / "token")
        assert ran.code == 0, ran.err
        assert servicer.metadata["authorization"] == "Bearer secret"
        refused = run(*command, "--tls-ca", authority.ca)
        assert refused.code == 1
        assert len(refused.err.strip().splitlines()) == 1
        monkeypatch.setenv("TWINLENS_TOKEN", "other")
        for name, value in zip(("CA", "CERT", "KEY", "NAME"), options[1::2], strict=True):
            monkeypatch.setenv(f"TWINLENS_TLS_{name}", str(value))
        assert run(*command).code == 0
        assert servicer.metadata["authorization"] == "Bearer other"


def test_a_server_in_this_process_takes_no_options_of_access_and_ignores_the_environment(
    run: Run, local: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run("collections", "list", *local, "--tls")
    assert ran.code == 2
    assert "--server" in ran.err
    monkeypatch.setenv("TWINLENS_TOKEN", "two words")
    for name in ("CA", "CERT", "KEY"):  # the last two are settings of servers, too
        monkeypatch.setenv(f"TWINLENS_TLS_{name}", "missing.pem")
    assert run("collections", "create", "photos", *local).code == 0
