"""Which server the options of a command name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

from twinlens.client import TwinlensError
from twinlens.client import connect as connecting
from twinlens.client.connect import connect, register_local


@pytest.fixture
def places() -> list[str | None]:
    """Where local servers were told to keep backups."""
    return []


@pytest.fixture
def started(
    places: list[str | None], monkeypatch: pytest.MonkeyPatch, target: str
) -> list[tuple[Path | None, str | None]]:
    """What a local server was started with."""
    monkeypatch.setattr(connecting, "_local", [])
    monkeypatch.delenv("TWINLENS_SERVER", raising=False)
    calls: list[tuple[Path | None, str | None]] = []

    @contextmanager
    def factory(data: Path | None, bundle: str | None, /, *, backups: str | None = None) -> Iterator[str]:
        places.append(backups)
        calls.append((data, bundle))
        yield target

    register_local(factory)
    return calls


def test_a_server_named_is_connected_to(started: list[tuple[Path | None, str | None]], target: str) -> None:
    with connect(target) as client:
        assert client.target == target
        client.models()
    assert started == []


def test_a_folder_is_served_with_its_bundle(
    started: list[tuple[Path | None, str | None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINLENS_SERVER", "127.0.0.1:1")  # an option goes before the environment
    with connect(local=tmp_path) as client:
        client.models()
    with connect(local=str(tmp_path / "new"), bundle=tmp_path, create=True):
        pass
    for bundle in ("s3://bucket/models/mine/2", "mine/2"):  # whether it is there is the server's to find out
        with connect(bundle=bundle, alone=True):
            pass
    local, *alone = started[1:]
    assert local == (tmp_path / "new", str(tmp_path))
    assert alone == [(None, "s3://bucket/models/mine/2"), (None, "mine/2")]


def test_a_place_for_backups_goes_to_the_local_server_and_to_no_other(
    started: list[tuple[Path | None, str | None]], places: list[str | None], tmp_path: Path, target: str
) -> None:
    with connect(local=tmp_path, backups="s3://bucket/backups"):
        pass
    assert len(started) == 1
    assert places == ["s3://bucket/backups"]
    with pytest.raises(typer.BadParameter, match="TWINLENS_BACKUPS"), connect(target, backups="somewhere"):
        pass


def test_no_server_and_two_servers_are_wrong_usage(
    started: list[tuple[Path | None, str | None]], tmp_path: Path
) -> None:
    with pytest.raises(typer.BadParameter), connect():
        pass
    with pytest.raises(typer.BadParameter), connect("a:1", tmp_path):
        pass
    with pytest.raises(typer.BadParameter), connect("a:1", bundle=tmp_path):
        pass
    assert started == []


def test_a_bundle_alone_is_wrong_usage_where_something_is_to_be_kept_or_found(
    started: list[tuple[Path | None, str | None]], tmp_path: Path
) -> None:
    with pytest.raises(typer.BadParameter, match="--bundle goes with --local"), connect(bundle=tmp_path, create=True):
        pass
    assert started == []


@pytest.mark.parametrize("timeout_s", [None, 2.5])
def test_the_deadline_asked_for_is_that_of_the_client(
    started: list[tuple[Path | None, str | None]], target: str, tmp_path: Path, timeout_s: float | None
) -> None:
    for given in ({"server": target}, {"local": tmp_path}):
        with connect(**given, timeout_s=timeout_s) as client:
            assert client._timeout_s == timeout_s


def test_a_folder_that_is_missing_is_not_made(started: list[tuple[Path | None, str | None]], tmp_path: Path) -> None:
    for bundle in (None, tmp_path):
        with pytest.raises(TwinlensError, match="no such folder"), connect(local=tmp_path / "a", bundle=bundle):
            pass
    assert started == []


def test_without_the_program_around_it_the_client_knows_no_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(connecting, "_local", [])
    with pytest.raises(TwinlensError) as caught, connect(local=tmp_path):
        pass
    assert caught.value.code == "FAILED_PRECONDITION"
