from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from tests.server.watched import PATIENCE_S, until
from twinlens.encoders.errors import InvalidText
from twinlens.encoders.tokenise import TokenisedText
from twinlens.server.core.call import Call
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.lanes import Priority
from twinlens.server.core.preparing import Preparation
from twinlens.server.core.telemetry import Telemetry


class Decoder:
    """Notes what it decodes; `hold` makes it wait inside."""

    def __init__(self) -> None:
        self.decoded: list[bytes] = []
        self._open = threading.Event()
        self._open.set()

    def __call__(self, data: bytes) -> NDArray[np.float32]:
        self.decoded.append(data)
        assert self._open.wait(PATIENCE_S)
        return np.zeros((3, 1, 1), dtype=np.float32)

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()


@pytest.fixture
def decoder() -> Decoder:
    return Decoder()


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest_asyncio.fixture
async def preparation(decoder: Decoder, telemetry: Telemetry) -> AsyncIterator[Preparation]:
    preparation = Preparation(1, max_batch=1, telemetry=telemetry)
    yield preparation
    decoder.release()
    await asyncio.to_thread(preparation.pool.close)


def dropped(telemetry: Telemetry, why: str) -> float | None:
    return telemetry.registry.get_sample_value("twinlens_dropped_items_total", {"stage": "prepare", "why": why})


def tokenise(text: str) -> TokenisedText:
    if text == "bad":
        raise InvalidText("it is bad")
    return TokenisedText(tuple(range(len(text))), truncated=False)


async def test_a_picture_whose_caller_went_away_is_not_decoded(
    preparation: Preparation, decoder: Decoder, telemetry: Telemetry
) -> None:
    decoder.hold()
    first = asyncio.ensure_future(preparation.picture(decoder, b"first", Call()))
    await until(lambda: decoder.decoded == [b"first"])
    gone = asyncio.ensure_future(preparation.picture(decoder, b"gone", Call()))
    last = asyncio.ensure_future(preparation.picture(decoder, b"last", Call()))
    await until(lambda: len(preparation.pool) == 2)
    gone.cancel()
    decoder.release()
    await asyncio.gather(first, last)
    assert decoder.decoded == [b"first", b"last"]
    assert dropped(telemetry, "cancelled") == 1


async def test_a_picture_whose_deadline_passed_is_not_decoded(
    preparation: Preparation, decoder: Decoder, telemetry: Telemetry
) -> None:
    with pytest.raises(ServiceError) as caught:
        await preparation.picture(decoder, b"late", Call(deadline_s=time.monotonic() - 1))
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    assert decoder.decoded == []
    assert dropped(telemetry, "expired") == 1


async def test_what_is_being_decoded_does_not_count_as_dropped(
    preparation: Preparation, decoder: Decoder, telemetry: Telemetry
) -> None:
    decoder.hold()
    going = asyncio.ensure_future(preparation.picture(decoder, b"going", Call()))
    await until(lambda: decoder.decoded == [b"going"])
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert dropped(telemetry, "cancelled") == 0


@pytest.mark.parametrize("text", ["short", "long " * 1000])
async def test_texts_whose_deadline_passed_are_not_tokenised(
    preparation: Preparation, telemetry: Telemetry, text: str
) -> None:
    with pytest.raises(ServiceError):
        await preparation.texts(tokenise, [text, text], Call(deadline_s=time.monotonic() - 1))
    assert dropped(telemetry, "expired") == 2


@pytest.mark.parametrize("longer", ["", "x" * 1000])
async def test_each_text_is_read_on_its_own(preparation: Preparation, longer: str) -> None:
    good, bad, blank, last = await preparation.texts(tokenise, ["good", "bad", " \n", "last" + longer], Call())
    assert isinstance(good, TokenisedText)
    assert isinstance(last, TokenisedText)
    assert (len(good.ids), len(last.ids)) == (4, 4 + len(longer))
    assert isinstance(bad, InvalidText)
    assert "empty" in str(blank)


async def test_short_texts_do_not_wait_for_pictures(preparation: Preparation, decoder: Decoder) -> None:
    decoder.hold()
    picture = asyncio.ensure_future(preparation.picture(decoder, b"large", Call()))
    await until(lambda: decoder.decoded == [b"large"])
    (text,) = await preparation.texts(tokenise, ["a query"], Call())
    assert isinstance(text, TokenisedText)
    decoder.release()
    await picture


async def test_bulk_pictures_leave_room_for_interactive_ones(preparation: Preparation, telemetry: Telemetry) -> None:
    bulk = Call(priority=Priority.BULK)
    async with preparation.room(bulk), preparation.room(bulk):
        waits = asyncio.ensure_future(preparation.room(bulk).__aenter__())
        await asyncio.sleep(0)
        async with preparation.room(Call()):
            assert not waits.done()
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
    assert dropped(telemetry, "cancelled") == 1
