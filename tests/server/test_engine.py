from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from tests.server.running import picture
from tests.server.watched import WatchedEncoder
from tests.support.fake_encoder import FakeEncoder
from twinlens.encoders.tokenise import TokenisedText
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Input, Picture, PictureAt, Text, size_of
from twinlens.server.core.errors import Reason
from twinlens.server.core.lanes import Priority


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine(WatchedEncoder(), max_batch=1, max_delay_s=0.0, prepare_threads=1)
    yield engine
    await engine.close()


async def test_outcomes_come_in_the_order_of_their_inputs(engine: Engine) -> None:
    inputs: list[Input] = [
        Text("red"),
        Picture(picture("red")),
        Text(" "),
        Picture(b""),
        Text("blue"),
        Picture(picture("blue")),
    ]
    outcomes = await engine.embed(inputs, Call())
    assert [outcome.failure.reason if outcome.failure else None for outcome in outcomes] == [
        *(None, None, Reason.INVALID_TEXT, Reason.INVALID_IMAGE, None, None),
    ]
    vectors = [outcome.vector for outcome in outcomes]
    for position in (0, 1, 4, 5):
        (alone,) = await engine.embed([inputs[position]], Call())
        assert alone.vector is not None
        assert vectors[position] is not None
        assert alone.vector.tolist() == vectors[position].tolist()  # type: ignore[union-attr]  # as just asserted


async def test_pictures_at_an_address_fail_alone_where_nothing_fetches(engine: Engine) -> None:
    text, picture_at = await engine.embed([Text("red"), PictureAt("https://example.com/a.jpg")], Call())
    assert text.vector is not None
    assert picture_at.failure is not None
    assert picture_at.failure.reason is Reason.NOT_FETCHED


async def test_the_canary_stays_urgent_however_small_batches_are(engine: Engine) -> None:
    bulk = engine._preparation._windows[Priority.BULK]
    await bulk.acquire()
    await bulk.acquire()  # no room for bulk work
    canary = Call(priority=Priority.URGENT)
    outcomes = await engine.embed([Picture(picture("red")), Text("canary")], canary)
    assert all(outcome.vector is not None for outcome in outcomes)


async def test_another_encoder_of_the_same_space_takes_over(engine: Engine) -> None:
    anew = WatchedEncoder()
    before = await engine.embed([Text("red")], Call())
    engine.use(anew)
    after = await engine.embed([Text("red")], Call())
    assert anew.text_batches == [1]
    assert before[0].vector is not None
    assert after[0].vector is not None
    assert before[0].vector.tolist() == after[0].vector.tolist()
    with pytest.raises(ValueError, match="another space"):
        engine.use(WatchedEncoder(seed=1))


class Overflowing(FakeEncoder):
    """Gives no numbers for one text."""

    def encode_texts(self, tokens: Sequence[TokenisedText]) -> NDArray[np.float32]:
        vectors = super().encode_texts(tokens)
        vectors[[text == self.prepare_text("bad") for text in tokens]] = np.nan
        return vectors


async def test_a_vector_that_is_none_fails_its_input_alone() -> None:
    engine = Engine(Overflowing(), max_batch=4, max_delay_s=0.0, prepare_threads=1)
    outcomes = await engine.embed([Text("red"), Text("bad"), Text("blue")], Call())
    failures = [outcome.failure.reason if outcome.failure else None for outcome in outcomes]
    assert failures == [None, Reason.INTERNAL, None]
    await engine.close()


def test_inputs_weigh_what_was_sent() -> None:
    assert [size_of(entry) for entry in (Picture(b"1234"), PictureAt("https://a"), Text("ab"))] == [4, 9, 2]
