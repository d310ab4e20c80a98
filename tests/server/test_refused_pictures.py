from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.server.running import Running
from tests.server.watched import until
from twinlens.encoders.errors import InvalidImage


@pytest.fixture
def collector_at_rest() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_picture_that_was_refused_is_let_go_at_once(served: Running, collector_at_rest: None) -> None:
    for _ in range(3):
        assert (await served.embed(b"no picture")).results[0].WhichOneof("outcome") == "error"
    await until(lambda: not [each for each in gc.get_objects() if isinstance(each, InvalidImage)])
