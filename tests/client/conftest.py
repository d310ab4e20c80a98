"""A real server for the client's tests, in this process, and both clients under one set of tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.blocking import Blocking
from tests.support.command_runs import Ran
from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import solid, write_folder
from twinlens.__main__ import main
from twinlens.client import Client, NewItem
from twinlens.server.local import local_server
from twinlens.server.settings import Settings

# The canary flies once at the start and not again: nothing here is timed.
SETTINGS = Settings(canary_interval_s=3600.0)

_numbers = itertools.count()


@pytest.fixture(params=["sync", "async"])
def open_client(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Client, or AsyncClient made to block: what takes a target and is a context manager."""
    return Client if request.param == "sync" else Blocking


@pytest.fixture(scope="session")
def target() -> Iterator[str]:
    """The address of a running server with a fake encoder; tests use collections of their own."""
    with local_server(encoder=FakeEncoder(), settings=SETTINGS) as address:
        yield address


@pytest.fixture
def client(open_client: Callable[..., Any], target: str) -> Iterator[Any]:
    with open_client(target) as made:
        yield made


@pytest.fixture
def photos(client: Any) -> Iterator[str]:
    """A collection of four coloured pictures with captions."""
    name = f"photos-{next(_numbers)}"
    client.create_collection(name)
    items = [
        NewItem(id=colour, image=solid(colour), caption=f"a {colour} wall", metadata={"hue": colour, "n": 3})
        for colour in ("red", "green", "blue", "yellow")
    ]
    assert client.upsert(name, items).stored == 4
    yield name
    client.delete_collection(name)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Four pictures, a broken one, and a file that is none."""
    return write_folder(tmp_path / "pictures")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    monkeypatch.delenv("TWINLENS_SERVER", raising=False)

    def run_command(*arguments: object) -> Ran:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run_command


@pytest.fixture(params=["local", "server"])
def where(request: pytest.FixtureRequest, tiny_bundle: Path, tmp_path: Path) -> Iterator[tuple[object, ...]]:
    """The options that name a data folder of its own: served in process, or by a server that runs beside."""
    if request.param == "local":
        with local_server(tmp_path / "data", tiny_bundle):
            pass  # from now on the folder knows its bundle
        yield ("--local", tmp_path / "data")
        return
    with local_server(tmp_path / "data", tiny_bundle, settings=SETTINGS) as target:
        yield ("--server", target)


@pytest.fixture
def local(tiny_bundle: Path, tmp_path: Path) -> tuple[object, ...]:
    return ("--local", tmp_path / "data", "--bundle", tiny_bundle)
