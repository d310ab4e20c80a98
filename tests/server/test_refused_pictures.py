from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.server.running import Running, picture, run_server
from tests.server.watched import until
from tests.support.fake_encoder import FakeEncoder
from twinlens.encoders.errors import InvalidImage


class Broken(Exception):  # noqa: N818
    pass


class BrokenEncoder(FakeEncoder):
    broken = False

    def encode_images(self, pixels_nchw: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.broken:
            raise Broken
        return super().encode_images(pixels_nchw)


@pytest.fixture
def collector_at_rest() -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # the test runner keeps all that is logged, and with it what failed
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    logging.disable(logging.NOTSET)


def living(kind: type[Exception]) -> int:
    """How many failures there are, each of which holds the pictures it is about."""
    return sum(issubclass(type(each), kind) for each in gc.get_objects())  # some answer isinstance with a warning


async def test_a_picture_that_was_refused_is_let_go_at_once(served: Running, collector_at_rest: None) -> None:
    before = living(InvalidImage)  # of tests that failed, say
    for _ in range(3):
        assert (await served.embed(b"no picture")).results[0].WhichOneof("outcome") == "error"
    await until(lambda: living(InvalidImage) <= before)


async def test_pictures_on_which_the_encoder_failed_are_let_go(data: Path, collector_at_rest: None) -> None:
    encoder = BrokenEncoder()
    async with run_server(data, encoder) as served:
        encoder.broken = True
        for _ in range(5):
            reply = await served.embed(*(picture(colour) for colour in ("red", "green", "blue")))
            assert [result.WhichOneof("outcome") for result in reply.results] == ["error"] * 3
        await until(lambda: living(Broken) <= 1)  # what a worker met last
