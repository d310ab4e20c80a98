from __future__ import annotations

import json

import pytest

from twinlens.__main__ import main


def test_a_working_server_is_serving(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--server", target]) == 0
    assert capsys.readouterr().out == "SERVING\n"


def test_each_service_is_asked_by_name(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--server", target, "--service", "twinlens.v1.SearchService", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "SERVING"


def test_an_unknown_service_is_named(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--server", target, "--service", "no.such.Service"]) == 1
    assert "no.such.Service" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--server", "127.0.0.1:1", "--timeout", "2"]) == 1
    error = capsys.readouterr().err
    assert "127.0.0.1:1" in error
    assert len(error.strip().splitlines()) == 1


def test_no_server_named_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWINLENS_SERVER", raising=False)
    assert main(["health"]) == 2
