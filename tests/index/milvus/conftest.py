from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.milvus_server import milvus_running


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with milvus_running(tmp_path_factory.mktemp("milvus")) as address:
        yield address


@pytest.fixture(params=["lite", pytest.param("server", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "server":
        return str(request.getfixturevalue("milvus_server"))
    pytest.importorskip("milvus_lite")
    return f"milvus:{tmp_path / 'milvus.db'}"
