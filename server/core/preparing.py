"""What comes before the towers: decoding pictures and tokenising texts, for those who still wait for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from prometheus_client import Histogram

from twinlens.encoders.errors import InvalidText
from twinlens.encoders.tokenise import TokenisedText
from twinlens.server.core.call import Call
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.lanes import Priority
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.telemetry import Telemetry

R = TypeVar("R")

# Texts of so many characters in all are tokenised where they come in: that takes less than handing them to a thread and
# back, and the event loop does not feel it.
_SHORT_CHARACTERS = 512


class Preparation:
    """Worker threads that prepare, and the room for what is prepared.

    Args:
        threads: How many.
        max_batch: Most items in one run of a tower.
        telemetry: Times, and counts what was dropped.
    """

    def __init__(self, threads: int, *, max_batch: int, telemetry: Telemetry) -> None:
        self.pool = WorkerPool("prepare", threads)
        # Prepared pictures that are not encoded yet are large (600 kB at 224 px), so only so many exist at a time.
        # Bulk work has a window of its own and cannot take interactive work's.
        self._windows = {
            Priority.URGENT: asyncio.Semaphore(1),
            Priority.INTERACTIVE: asyncio.Semaphore(4 * max_batch),
            Priority.BULK: asyncio.Semaphore(2 * max_batch),
        }
        self._image_seconds = telemetry.prepare_seconds.labels("image")
        self._text_seconds = telemetry.prepare_seconds.labels("text")
        self._cancelled = telemetry.dropped_items.labels("prepare", "cancelled")
        self._expired = telemetry.dropped_items.labels("prepare", "expired")

    @asynccontextmanager
    async def room(self, call: Call) -> AsyncIterator[None]:
        """Room for one picture from here until it is encoded."""
        window = self._windows[call.priority]
        try:
            await window.acquire()
        except asyncio.CancelledError:
            self._cancelled.inc()
            raise
        try:
            yield
        finally:
            window.release()

    async def picture(
        self, decode: Callable[[bytes], NDArray[np.float32]], data: bytes, call: Call
    ) -> NDArray[np.float32]:
        """Decodes a picture on a worker thread; not at all where nobody waits for it when its turn comes.

        Args:
            decode: What `EncoderLike.prepare_image` does.
            data: The encoded picture.
            call: Who waits.

        Raises:
            InvalidImage: as `decode` does.
            ServiceError: DEADLINE_EXCEEDED if the call's deadline passed before.
        """

        def work() -> NDArray[np.float32]:
            began_s = time.monotonic()
            try:
                return decode(data)
            finally:
                _note(self._image_seconds, call, began_s, kind="image", items=1)

        return await self._run(work, 1, call)

    async def texts(
        self, tokenise: Callable[[str], TokenisedText], texts: Sequence[str], call: Call
    ) -> list[TokenisedText | Exception]:
        """Tokenises texts, each on its own; not at all where nobody waits for them when their turn comes.

        Args:
            tokenise: What `EncoderLike.prepare_text` does.
            texts: At least one.
            call: Who waits.

        Returns:
            For each text what became of it, or why it could not be read.

        Raises:
            ServiceError: DEADLINE_EXCEEDED if the call's deadline passed before.
        """

        def work() -> list[TokenisedText | Exception]:
            began_s = time.monotonic()
            prepared = [_tokenised(tokenise, text) for text in texts]
            _note(self._text_seconds, call, began_s, kind="text", items=len(texts))
            return prepared

        if sum(map(len, texts)) <= _SHORT_CHARACTERS:
            self._check(len(texts), call)
            return work()
        return await self._run(work, len(texts), call)

    async def _run(self, work: Callable[[], R], items: int, call: Call) -> R:
        began = False

        def if_wanted() -> R:
            nonlocal began
            self._check(items, call)
            began = True
            return work()

        try:
            return await self.pool.submit(call.priority, if_wanted)
        except asyncio.CancelledError:
            if not began:
                self._cancelled.inc(items)
            raise

    def _check(self, items: int, call: Call) -> None:
        if call.expired:
            self._expired.inc(items)
            raise ServiceError(Code.DEADLINE_EXCEEDED, "the deadline passed before the item was prepared")


def _note(seconds: Histogram, call: Call, began_s: float, *, kind: str, items: int) -> None:
    ended_s = time.monotonic()
    seconds.observe(ended_s - began_s)
    if call.trace is not None:
        call.trace.add("prepare", began_s, ended_s, kind=kind, items=items)


def _tokenised(tokenise: Callable[[str], TokenisedText], text: str) -> TokenisedText | Exception:
    if not text.strip():
        return InvalidText("the text is empty")
    try:
        return tokenise(text)
    except Exception as error:  # told of this text alone
        return error
    except BaseException as error:  # a panic of Rust, say, which tokenizers are written in: it would end the event loop
        failure = RuntimeError(f"the tokenizer broke off: {type(error).__name__}")
        failure.__cause__ = error
        return failure
