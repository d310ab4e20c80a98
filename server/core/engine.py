"""Embedding: inputs in, one outcome an input out. Decoding and tokenising overlap with the towers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.errors import InvalidText
from twinlens.encoders.protocol import EncoderLike
from twinlens.encoders.tokenise import TokenisedText
from twinlens.index.item import Modality
from twinlens.server.core.batcher import Batcher
from twinlens.server.core.call import Call
from twinlens.server.core.errors import (
    ItemFailure,
    Reason,
    ServiceError,
    as_item_failure,
    internal_failure,
)
from twinlens.server.core.lanes import Priority
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.towers import no_tower

log = logging.getLogger(__name__)

Pixels = NDArray[np.float32]
UnitVector = NDArray[np.float32]

# Texts tokenised in one hop to the pool: a hop costs more than a short text.
_TEXTS_A_HOP = 64
_UNIT_TOLERANCE = 1e-3
# A tower that has not answered for so long while the server ends will not answer.
_STUCK_S = 5.0


@dataclass(frozen=True, slots=True)
class Picture:
    """An encoded picture to embed."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Text:
    """A text to embed."""

    text: str


Input = Picture | Text


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one input: a unit vector of shape (d,), or why there is none."""

    vector: UnitVector | None = None
    failure: ItemFailure | None = None
    truncated: bool = False


class Engine:
    """The towers of one encoder behind their batchers.

    The towers take turns, a batch at a time, for each may use all the threads there are for encoding.

    Args:
        encoder: The loaded bundle.
        max_batch: Most items in one run of a tower.
        max_delay_s: See `Batcher`.
        prepare_threads: Threads that decode and tokenise.
    """

    def __init__(self, encoder: EncoderLike, *, max_batch: int, max_delay_s: float, prepare_threads: int) -> None:
        self.encoder = encoder
        self.manifest = encoder.manifest
        self._max_batch = max_batch
        self._prepare = WorkerPool("prepare", prepare_threads)
        self._towers = WorkerPool("towers", threads=1)
        self.images: Batcher[Pixels, UnitVector] = Batcher(
            "image", self._run_images, worker=self._towers, max_batch=max_batch, max_delay_s=max_delay_s
        )
        self.texts: Batcher[TokenisedText, UnitVector] = Batcher(
            "text",
            self._run_texts,
            worker=self._towers,
            max_batch=max_batch,
            max_delay_s=max_delay_s,
            cost=lambda text: len(text.ids),
        )
        # Pictures prepared but not yet encoded are large (600 kB at 224 px), so only so many exist at a time.
        # Bulk work has a window of its own and cannot take interactive work's.
        self._windows = {
            Priority.URGENT: asyncio.Semaphore(1),
            Priority.INTERACTIVE: asyncio.Semaphore(4 * max_batch),
            Priority.BULK: asyncio.Semaphore(2 * max_batch),
        }

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return self.manifest.dimension

    @property
    def has_image_tower(self) -> bool:
        """Whether pictures can be embedded."""
        return self.manifest.image is not None

    @property
    def has_text_tower(self) -> bool:
        """Whether texts can be embedded."""
        return self.manifest.text is not None

    async def close(self) -> None:
        """Stops batchers and threads; what runs is waited for, but not for ever."""
        await self.images.close()
        await self.texts.close()
        for pool in (self._towers, self._prepare):
            await asyncio.to_thread(pool.close, _STUCK_S)

    async def embed(self, inputs: Sequence[Input], call: Call) -> list[Outcome]:
        """Embeds inputs; outcomes come in the same order.

        A call with more inputs than one batch takes is bulk work, whatever it says of itself: smaller calls overtake
        it.

        Raises:
            ServiceError: if the whole call cannot be answered (its deadline passed).
        """
        if len(inputs) > self._max_batch:
            call = replace(call, priority=Priority.BULK)
        outcomes: list[Outcome | ServiceError | None] = [None] * len(inputs)
        pictures = [(i, entry) for i, entry in enumerate(inputs) if isinstance(entry, Picture)]
        texts = [(i, entry) for i, entry in enumerate(inputs) if isinstance(entry, Text)]
        groups = [texts[i : i + _TEXTS_A_HOP] for i in range(0, len(texts), _TEXTS_A_HOP)]

        async def picture(position: int, entry: Picture) -> None:
            outcomes[position] = await self._embed_picture(entry, call)

        async def group(entries: list[tuple[int, Text]]) -> None:
            results = await self._embed_texts([entry for _, entry in entries], call)
            for (position, _), result in zip(entries, results, strict=True):
                outcomes[position] = result

        await asyncio.gather(*(picture(i, entry) for i, entry in pictures), *(group(entries) for entries in groups))
        done: list[Outcome] = []
        for outcome in outcomes:
            if isinstance(outcome, ServiceError):
                raise outcome
            assert outcome is not None  # noqa: S101 - every position was filled above
            done.append(outcome)
        return done

    async def _embed_picture(self, entry: Picture, call: Call) -> Outcome | ServiceError:
        if not self.has_image_tower:
            return self._unsupported(Modality.IMAGE)
        if not entry.data:
            return Outcome(failure=ItemFailure(Reason.INVALID_IMAGE, "the picture is empty"))
        try:
            async with self._windows[call.priority]:
                pixels = await self._prepare.submit(call.priority, self.encoder.prepare_image, entry.data)
                vector = await self.images.submit(pixels, call)
        except Exception as error:
            return _failed(error, call)
        return _checked(vector, False, call)

    async def _embed_texts(self, entries: Sequence[Text], call: Call) -> list[Outcome | ServiceError]:
        if not self.has_text_tower:
            return [self._unsupported(Modality.TEXT)] * len(entries)
        prepared = await self._prepare.submit(call.priority, self._tokenise, [entry.text for entry in entries])
        waiting = {
            i: self.texts.submit(tokens, call) for i, tokens in enumerate(prepared) if isinstance(tokens, TokenisedText)
        }
        vectors = dict(zip(waiting, await asyncio.gather(*waiting.values(), return_exceptions=True), strict=True))
        results: list[Outcome | ServiceError] = []
        for i, tokens in enumerate(prepared):
            outcome = vectors.get(i, tokens)
            if isinstance(outcome, Exception):
                results.append(_failed(outcome, call))
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                assert isinstance(tokens, TokenisedText)  # noqa: S101 - only those were encoded
                results.append(_checked(np.asarray(outcome), tokens.truncated, call))
        return results

    def _tokenise(self, texts: Sequence[str]) -> list[TokenisedText | Exception]:
        prepared: list[TokenisedText | Exception] = []
        for text in texts:
            try:
                prepared.append(self._tokenise_one(text))
            except Exception as error:
                prepared.append(error)
        return prepared

    def _tokenise_one(self, text: str) -> TokenisedText:
        if not text.strip():
            raise InvalidText("the text is empty")
        return self.encoder.prepare_text(text)

    def _unsupported(self, missing: Modality) -> Outcome:
        this, other = ("text", "a picture") if missing is Modality.TEXT else ("picture", "a text")
        message = no_tower(self.manifest, missing, f"a {this} cannot be embedded", f"give {other} instead")
        return Outcome(failure=ItemFailure(Reason.UNSUPPORTED, message))

    def _run_images(self, batch: Sequence[Pixels]) -> Sequence[UnitVector]:
        return list(self.encoder.encode_images(np.stack(batch)))

    def _run_texts(self, batch: Sequence[TokenisedText]) -> Sequence[UnitVector]:
        return list(self.encoder.encode_texts(batch))


def _failed(error: Exception, call: Call) -> Outcome | ServiceError:
    if isinstance(error, ServiceError):
        return error
    failure = as_item_failure(error)
    if failure is None:
        log.error("request %s: an item could not be embedded", call.request_id, exc_info=error)
        failure = internal_failure(call.request_id)
    return Outcome(failure=failure)


def _checked(vector: UnitVector, truncated: bool, call: Call) -> Outcome:
    """An encoder that overflows gives NaN for one row only; such a vector must not reach an index."""
    norm = float(np.linalg.norm(vector))
    if not abs(norm - 1.0) <= _UNIT_TOLERANCE:
        log.error("request %s: the encoder gave a vector of norm %s", call.request_id, norm)
        return Outcome(failure=internal_failure(call.request_id))
    return Outcome(vector=vector, truncated=truncated)
