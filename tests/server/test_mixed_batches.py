"""Good items beside bad ones, on the real runtime.

That neither the number of rows nor the length that texts are padded to changes a bit is a property of ONNX Runtime's
kernels for the CPU (and of OpenVINO's), found by trying, not promised by anybody. Where it should not hold, these tests
say so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from tests.server.watched import PATIENCE_S, nothing_dropped, until
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.parity_inputs import default_parity_images
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Input, Outcome, Picture, Text
from twinlens.server.core.errors import Reason
from twinlens.server.core.lanes import Priority

PICTURES = [Picture(data) for data in list(default_parity_images().values())[:3]]
BAD_PICTURES = [Picture(PICTURES[0].data[:100]), Picture(b"not a picture"), Picture(b"")]
TEXTS = [Text("a red square"), Text("two dogs on a beach, and a cat that looks at them"), Text("blue")]
BAD_TEXTS = [Text(""), Text("a \x00 in it"), Text("\ud800")]


@pytest_asyncio.fixture
async def engine(mid_bundle: Path) -> AsyncIterator[Engine]:
    encoder = Encoder.load(mid_bundle, threads=1)
    engine = Engine(encoder, max_batch=16, max_delay_s=0.0, prepare_threads=1)
    with nothing_dropped():
        yield engine
        await engine.close()
    encoder.close()


@contextmanager
def held(engine: Engine) -> Iterator[None]:
    """Lets nothing run, so that all that comes meanwhile makes one batch a tower."""
    go = threading.Event()
    engine._towers.submit(Priority.URGENT, lambda _: go.wait(PATIENCE_S), ())  # a batch of nothing
    try:
        yield
    finally:
        go.set()


async def together(engine: Engine, inputs: Sequence[Input], good: int) -> list[Outcome]:
    with held(engine):
        embedding = asyncio.ensure_future(engine.embed(inputs, Call()))
        await until(lambda: len(engine.images) + len(engine.texts) == good)
    return await embedding


def vectors(outcomes: Sequence[Outcome]) -> list[np.ndarray]:
    return [np.asarray(outcome.vector) for outcome in outcomes if outcome.vector is not None]


@pytest.mark.parametrize(("good", "bad"), [(PICTURES, BAD_PICTURES), (TEXTS, BAD_TEXTS)], ids=["pictures", "texts"])
async def test_bad_items_change_nothing_for_the_good_ones_of_their_batch(
    engine: Engine, good: Sequence[Input], bad: Sequence[Input]
) -> None:
    clean = await together(engine, good, len(good))
    mixed = [bad[0], good[0], bad[1], good[1], good[2], bad[2]]
    outcomes = await together(engine, mixed, len(good))
    assert [outcome.vector is None for outcome in outcomes] == [True, False, True, False, False, True]
    reasons = {outcome.failure.reason for outcome in outcomes if outcome.failure is not None}
    assert reasons == {Reason.INVALID_IMAGE if good is PICTURES else Reason.INVALID_TEXT}
    for alone, beside in zip(vectors(clean), vectors(outcomes), strict=True):
        np.testing.assert_array_equal(alone, beside)  # bit for bit


@pytest.mark.parametrize("good", [PICTURES, TEXTS], ids=["pictures", "texts"])
async def test_a_batch_gives_its_items_bit_for_bit_what_they_get_alone(engine: Engine, good: Sequence[Input]) -> None:
    alone = [vectors(await engine.embed([entry], Call()))[0] for entry in good]
    for order in permutations(range(len(good))):
        outcomes = await together(engine, [good[i] for i in order], len(good))
        for i, vector in zip(order, vectors(outcomes), strict=True):
            np.testing.assert_array_equal(vector, alone[i])
