"""A stream of our own client that goes on while its server is killed and started again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import numpy as np

from tests.support.chaos.waiting import PATIENCE_S, eventually
from tests.support.fake_encoder import FakeEncoder
from twinlens.client import AsyncClient, TextInput

# A stream may be far ahead of its answers; the client sends messages of so many inputs at most.
_MOST_TEXTS = 1_000_000


class ClientStream:
    """Embeds texts in one call of `embed_stream`, and compares every answer.

    Attributes:
        answered: How many texts were, in order and rightly.
    """

    def __init__(self, dimension: int = 32) -> None:
        self.answered = 0
        self._encoder = FakeEncoder(dimension)
        self._ended = threading.Event()

    def end(self) -> None:
        """Sends no more texts."""
        self._ended.set()

    async def run(self, address: str) -> None:
        """Goes on until `end`.

        Raises:
            AssertionError: for a wrong answer.
        """
        sent = 0

        def texts() -> Iterator[TextInput]:
            nonlocal sent
            while not self._ended.is_set() and sent < _MOST_TEXTS:
                sent += 1
                yield TextInput(_text(sent))

        async with AsyncClient(address) as client:
            async for each in client.embed_stream(texts()):
                self.answered += 1
                expected = self._encoder.encode_texts([self._encoder.prepare_text(_text(self.answered))])[0]
                assert each.vector is not None, each.error
                np.testing.assert_allclose(each.vector, expected, atol=1e-6)
        assert self.answered == sent


def _text(number: int) -> str:
    return f"text {number} of a stream"


@asynccontextmanager
async def client_stream(address: str) -> AsyncIterator[ClientStream]:
    """One that runs within the block; at its end all that it sent has to be answered."""
    stream = ClientStream()
    running = asyncio.create_task(stream.run(address))
    try:
        await eventually("an answer of the stream", lambda: stream.answered > 0 or running.done())
        yield stream
    finally:
        stream.end()
        async with asyncio.timeout(PATIENCE_S):
            await running
