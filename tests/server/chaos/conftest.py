"""The server that hostile callers meet: one for all of them, for it has to withstand one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chaos.__main__ import SHARED
from tests.support.chaos.server_process import ServerProcess, server_process


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("chaos") / "data", **SHARED) as started:
        started.note_rest()
        yield started
        assert started.end() == 0
