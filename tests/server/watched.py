"""A fake encoder that can be watched, held and broken."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.fake_encoder import FakeEncoder
from twinlens.encoders.tokenise import TokenisedText

PATIENCE_S = 20.0


class WatchedEncoder(FakeEncoder):
    """Notes its batches; `hold` makes it wait inside a batch, `poison` and `broken` make it fail."""

    def __init__(self, dimension: int = 32, seed: int = 0, *, name: str = "fake", version: str = "1") -> None:
        super().__init__(dimension, seed, name=name, version=version)
        self.text_batches: list[int] = []
        self.image_batches: list[int] = []
        self.poison: set[tuple[int, ...]] = set()
        self.broken: Exception | None = None
        self._open = threading.Event()
        self._open.set()
        self._entered = threading.Semaphore(0)

    def encode_texts(self, tokens: Sequence[TokenisedText]) -> NDArray[np.float32]:
        self._pass(self.text_batches, len(tokens))
        if any(text.ids in self.poison for text in tokens):
            raise RuntimeError("secret /path/of/the/server")
        return super().encode_texts(tokens)

    def encode_images(self, pixels_nchw: NDArray[np.float32]) -> NDArray[np.float32]:
        self._pass(self.image_batches, len(pixels_nchw))
        return super().encode_images(pixels_nchw)

    def hold(self) -> None:
        """From now on batches wait for `release`; what ran before is forgotten."""
        self.text_batches.clear()
        self.image_batches.clear()
        self._entered = threading.Semaphore(0)
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def entered(self) -> None:
        """Returns once a batch is inside."""
        assert await asyncio.to_thread(self._entered.acquire, timeout=PATIENCE_S)

    def _pass(self, batches: list[int], size: int) -> None:
        batches.append(size)
        self._entered.release()
        assert self._open.wait(PATIENCE_S)
        if self.broken is not None:
            raise self.broken


@contextmanager
def nothing_dropped() -> Iterator[None]:
    """Whatever fails on the event loop meanwhile is told to somebody.

    Nothing is logged: a record of a failure keeps what failed from being collected.
    """
    dropped: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    gc.collect()  # what others dropped is theirs
    loop.set_exception_handler(lambda _, context: dropped.append(context))
    logging.disable(logging.CRITICAL)
    try:
        yield
        gc.collect()
    finally:
        logging.disable(logging.NOTSET)
        loop.set_exception_handler(before)
    assert dropped == []


async def until(condition: Callable[[], bool]) -> None:
    """Lets the event loop run until something is the case."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - any event would have to live in the code under test
            await asyncio.sleep(0.001)
