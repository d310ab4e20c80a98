"""Every example of the client's documentation, run against a real server."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor_pool import Default
from PIL import Image

from tests.support.certificates import Authority
from tests.support.doc_examples import fenced, run_examples
from tests.support.documented_server import DocumentedServer, documented_server
from twinlens import client as package
from twinlens.client import AsyncClient, Client
from twinlens.server.grpc_server import SERVICES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
ADDRESS = "127.0.0.1:50051"  # of the server, in the documentation


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentedServer]:
    folder = tmp_path_factory.mktemp("documented")
    Authority(folder, "ca")
    with documented_server(folder) as server:
        yield server


@pytest.fixture
def anew(served: DocumentedServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """Puts everything back, and gives the names that examples may use."""
    monkeypatch.chdir(served.folder)

    def begin() -> dict[str, Any]:
        served.begin_anew()
        exported = {name: getattr(package, name) for name in package.__all__}
        return {
            **exported,
            "Client": functools.partial(_at, Client, served.target),
            "AsyncClient": functools.partial(_at, AsyncClient, served.target),
            "Path": Path,
            "Image": Image,
            "np": np,
            "asyncio": asyncio,
        }

    return begin


def _at(kind: Callable[..., Any], served_at: str, target: str, **options: Any) -> Any:
    return kind(served_at if target == ADDRESS else target, **options)


def _all_methods() -> set[str]:
    """The paths of all methods of all our services."""
    found = ((service, Default().FindServiceByName(service)) for service in SERVICES)
    return {f"/{name}/{method.name}" for name, service in found for method in service.methods}


def _public(of: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(of, callable) if not name.startswith("_")}


def test_the_page_on_the_client_is_true_and_calls_every_method_of_every_service(
    served: DocumentedServer, anew: Callable[[], dict[str, Any]]
) -> None:
    names = anew()
    with asyncio.Runner() as loop:
        reports = [
            report
            for block in fenced(PAGE.read_text("utf-8"))
            for report in run_examples(block, names, PAGE.name, loop)
        ]
    assert not reports, "\n".join(reports)
    assert served.called >= _all_methods()


def test_what_is_said_of_the_blocking_client_is_true_of_every_method(
    served: DocumentedServer, anew: Callable[[], dict[str, Any]]
) -> None:
    reports, called = [], set[str]()
    with asyncio.Runner() as loop:
        for name, text in {"Client": Client.__doc__, **_docs(Client)}.items():
            names = anew()
            with Client(served.target) as client:
                reports += run_examples(text or "", {**names, "client": client}, name, loop)
            called |= served.called
    assert not reports, "\n".join(reports)
    assert called >= _all_methods()


def test_what_is_said_of_the_asynchronous_client_is_true_of_every_method(
    served: DocumentedServer, anew: Callable[[], dict[str, Any]]
) -> None:
    reports, called = [], set[str]()
    with asyncio.Runner() as loop:

        async def connected() -> AsyncClient:
            return AsyncClient(served.target)

        for name, text in {"AsyncClient": AsyncClient.__doc__, **_docs(AsyncClient)}.items():
            names = anew()
            client = loop.run(connected())
            reports += run_examples(text or "", {**names, "client": client}, name, loop)
            loop.run(client.close())
            called |= served.called
    assert not reports, "\n".join(reports)
    assert called >= _all_methods()


def _docs(of: type) -> dict[str, str]:
    return {f"{of.__name__}.{name}": inspect.getdoc(value) or "" for name, value in _public(of).items()}


@pytest.mark.parametrize("of", [Client, AsyncClient])
def test_every_method_has_an_example(of: type) -> None:
    assert [name for name, text in _docs(of).items() if ">>>" not in text] == []


def test_what_is_said_of_the_values_is_true(served: DocumentedServer, anew: Callable[[], dict[str, Any]]) -> None:
    reports = []
    with asyncio.Runner() as loop:
        for name in package.__all__:
            if name not in {"Client", "AsyncClient"} and ">>>" in (inspect.getdoc(getattr(package, name)) or ""):
                names = anew()
                with Client(served.target) as client:
                    text = inspect.getdoc(getattr(package, name)) or ""
                    reports += run_examples(text, {**names, "client": client}, name, loop)
    assert not reports, "\n".join(reports)
