"""A server process with tokens and certificates."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from tests.server.access.secured import bearer, token_in
from tests.server.running import embed_request
from tests.support.certificates import Authority
from tests.support.fake_encoder import FakeEncoder
from twinlens.__main__ import main
from twinlens.server.core.active import StartError
from twinlens.server.local import local_server
from twinlens.server.serve import serve
from twinlens.server.settings import Settings, SettingsError, load_settings
from twinlens.v1 import embedding_pb2_grpc

SERVE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.logs import configure_logging
from twinlens.server.serve import serve
from twinlens.server.settings import load_settings
configure_logging("info")
serve(load_settings(), encoder=FakeEncoder())
"""
ROOT = Path(__file__).resolve().parents[3]


def test_sighup_makes_a_server_look_at_its_tokens_and_leaves_it_running(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    token_in(tokens, "first", "read")
    environment = {
        "TWINLENS_DATA": str(tmp_path / "data"),
        "TWINLENS_TOKENS": str(tokens),
        "TWINLENS_PORT": "0",
        "TWINLENS_PORT_FILE": str(tmp_path / "port"),
    }
    started = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(ROOT)], stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert started.stderr is not None
        read_until(started, "twinlens: serving")
        second = token_in(tokens, "second", "read")
        started.send_signal(signal.SIGHUP)
        read_until(started, "2 tokens are good now")
        with grpc.insecure_channel(f"127.0.0.1:{(tmp_path / 'port').read_text().strip()}") as channel:
            embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
            assert len(embed(embed_request("red"), metadata=bearer(second)).results) == 1
        started.terminate()
        assert started.wait(20) == 0
    finally:
        started.kill()
        started.wait()
        if started.stderr is not None:
            started.stderr.close()


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return
    pytest.fail(f"the server ended without saying {text!r}: {lines}")


def test_files_that_are_not_in_order_are_told_before_a_model_is_loaded(tmp_path: Path) -> None:
    data, missing = tmp_path / "data", tmp_path / "missing"
    for settings in (
        Settings(data=data, bundle=str(missing), tokens=missing),
        Settings(data=data, bundle=str(missing), tls_cert=missing, tls_key=missing),
    ):
        with pytest.raises(StartError, match=r"missing( cannot be read)?: No such file"):
            serve(settings)
    assert not data.exists()


def test_fetching_without_its_extra_is_told_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "h11", None)
    command = ["serve", "--data", str(tmp_path / "data"), "--bundle", str(tmp_path), "--fetch-host", "a.example"]
    assert main(command) == 1
    assert capsys.readouterr().err == "twinlens: h11 is not installed: pip install 'twinlens[fetch]'\n"


def test_hosts_to_fetch_from_are_read_from_all_places_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINLENS_FETCH_HOSTS", "a.example, *.b.example:8443")
    assert load_settings().fetch_hosts == ("a.example", "*.b.example:8443")
    assert load_settings(fetch_hosts=("c.example",)).fetch_hosts == ("c.example",)
    with pytest.raises(SettingsError, match=r"setting fetch_hosts: '\*' is not a host to fetch from"):
        load_settings(fetch_hosts=("*",))


def test_a_local_server_on_its_private_socket_asks_for_nothing(tmp_path: Path) -> None:
    chain, key = Authority(tmp_path).sign("server", "127.0.0.1")
    tokens = tmp_path / "tokens.toml"
    token_in(tokens, "first", "read")
    settings = Settings(
        canary_interval_s=3600.0, provider="cpu", encode_threads=1, tokens=tokens, tls_cert=chain, tls_key=key
    )
    with (
        local_server(tmp_path / "data", encoder=FakeEncoder(), settings=settings) as target,
        grpc.insecure_channel(target) as channel,
    ):
        embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
        assert len(embed(embed_request("red")).results) == 1
