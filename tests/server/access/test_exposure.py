"""What is said of a server that other machines can reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.access.secured import secured
from twinlens.server.access.exposure import is_loopback, warnings
from twinlens.server.settings import Settings


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_loopback_needs_neither_tokens_nor_tls(host: str) -> None:
    assert is_loopback(host)
    assert warnings(Settings(host=host)) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com"])  # noqa: S104 - nothing is bound
def test_an_open_port_without_tokens_or_tls_is_warned_of(host: str, tmp_path: Path) -> None:
    files: dict[str, Any] = {"tls_cert": tmp_path / "c", "tls_key": tmp_path / "k"}
    open_door, clear = warnings(Settings(host=host))
    assert "may read and write everything" in open_door
    assert "--tls-cert" in clear
    (tokens_in_the_clear,) = warnings(Settings(host=host, tokens=tmp_path / "t"))
    assert "tokens too" in tokens_in_the_clear
    (no_tokens,) = warnings(Settings(host=host, **files))
    assert "--tokens" in no_tokens
    assert warnings(Settings(host=host, tokens=tmp_path / "t", **files)) == []
    assert warnings(Settings(host=host, tls_client_ca=tmp_path / "a", **files)) == []


async def test_a_server_that_is_open_says_so_in_its_log(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with secured(data, host="0.0.0.0"):  # noqa: S104 - it listens on loopback all the same
        assert "may read and write everything" in caplog.text
        assert "there is no TLS" in caplog.text
    caplog.clear()
    async with secured(data):
        assert "may read" not in caplog.text
