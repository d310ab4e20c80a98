"""Embedding: inputs in, one outcome an input out. Decoding and tokenising overlap with the towers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.protocol import EncoderLike
from twinlens.encoders.tokenise import TokenisedText
from twinlens.index.item import Modality
from twinlens.server.core.addressed import embed_addressed
from twinlens.server.core.batcher import Batcher
from twinlens.server.core.call import Call
from twinlens.server.core.errors import ItemFailure, Reason, ServiceError
from twinlens.server.core.fetch import Fetcher
from twinlens.server.core.item_counts import ItemCounts
from twinlens.server.core.lanes import Priority
from twinlens.server.core.outcome import NOT_FETCHED, Outcome, UnitVector, embedded, failed
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.preparing import Preparation
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.core.text_lengths import TextLengths
from twinlens.server.core.towers import no_tower

__all__ = ["Engine", "Input", "Outcome", "Picture", "PictureAt", "Text", "UnitVector"]

Pixels = NDArray[np.float32]

# Texts tokenised in one hop to the pool: a hop costs more than a short text.
_TEXTS_A_HOP = 64
# A tower that has not answered for so long while the server ends will not answer.
_STUCK_S = 5.0


@dataclass(frozen=True, slots=True)
class Picture:
    """An encoded picture to embed."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PictureAt:
    """A picture to fetch and embed."""

    url: str


@dataclass(frozen=True, slots=True)
class Text:
    """A text to embed."""

    text: str


Input = Picture | PictureAt | Text


def size_of(entry: Input) -> int:
    """The bytes an input holds as it was sent, or about as many."""
    match entry:
        case Picture(data):
            return len(data)
        case PictureAt(url):
            return len(url)
        case Text(text):
            return len(text)


def any_fetched(inputs: Iterable[Input]) -> bool:
    """Whether any of them has to be fetched first."""
    return any(isinstance(entry, PictureAt) for entry in inputs)


class Engine:
    """The towers of one encoder behind their batchers.

    The towers take turns, a batch at a time, for each may use all the threads there are for encoding.

    Attributes:
        max_batch: Most items in one run of a tower.

    Args:
        encoder: The loaded bundle.
        max_batch: See above.
        max_delay_s: See `Batcher`.
        prepare_threads: Threads that decode and tokenise.
        telemetry: Counts and times.
        fetcher: Fetches pictures that are named by their address; None: they fail.
        reopen: Loads the bundle once more, for towers that hung in the sessions there are.
    """

    def __init__(
        self,
        encoder: EncoderLike,
        *,
        max_batch: int,
        max_delay_s: float,
        prepare_threads: int,
        telemetry: Telemetry | None = None,
        fetcher: Fetcher | None = None,
        reopen: Callable[[], EncoderLike] | None = None,
    ) -> None:
        metrics = telemetry or Telemetry()
        self.encoder = encoder
        self.manifest = encoder.manifest
        self.max_batch = max_batch
        self._fetcher = fetcher
        self._counts = ItemCounts(metrics)
        self._reopen = reopen
        self._preparation = Preparation(prepare_threads, max_batch=max_batch, telemetry=metrics)
        self._towers = WorkerPool("towers", threads=1, size_of=len, on_replaced=self._renew)
        self.images: Batcher[Pixels, UnitVector] = Batcher(
            "image",
            self._run_images,
            worker=self._towers,
            max_batch=max_batch,
            max_delay_s=max_delay_s,
            telemetry=metrics,
        )
        text = self.manifest.text
        padded = text is not None and text.text.pad_to_context  # then all texts take the same time
        self.texts: Batcher[TokenisedText, UnitVector] = Batcher(
            "text",
            self._run_texts,
            worker=self._towers,
            max_batch=max_batch,
            max_delay_s=max_delay_s,
            buckets=None if padded else TextLengths(),
            telemetry=metrics,
        )

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

    @property
    def pools(self) -> tuple[WorkerPool, ...]:
        """Its worker threads."""
        return self._towers, self._preparation.pool

    @property
    def batch_s(self) -> float:
        """How long a full batch usually takes in the slower tower; 0 where that is not known yet."""
        return self.max_batch * self._towers.unit_s

    def is_bulk(self, inputs: int) -> bool:
        """Whether so many inputs of one call are bulk work, which others overtake."""
        return inputs > self.max_batch

    def use(self, encoder: EncoderLike) -> None:
        """Puts another encoder of the same bundle in the place of one that does not answer any more.

        Raises:
            ValueError: if it is of another space.
        """
        if encoder.manifest.space_id != self.manifest.space_id:
            raise ValueError("the encoder is of another space")
        self.encoder = encoder

    def _renew(self) -> None:
        if self._reopen is not None:
            self.use(self._reopen())

    async def close(self) -> None:
        """Stops batchers and threads; what runs is waited for, but not for ever."""
        await self.images.close()
        await self.texts.close()
        for pool in self.pools:
            await asyncio.to_thread(pool.close, _STUCK_S)

    async def embed(self, inputs: Sequence[Input], call: Call) -> list[Outcome]:
        """Embeds inputs; outcomes come in the same order.

        A call with more inputs than one batch takes is bulk work, whatever it says of itself: smaller calls overtake
        it.

        Raises:
            ServiceError: if the whole call cannot be answered (its deadline passed).
        """
        if self.is_bulk(len(inputs)) and call.priority is Priority.INTERACTIVE:
            call = replace(call, priority=Priority.BULK)
        with self._counts.counted(len(inputs)) as answers:
            if self._fetcher is not None and any_fetched(inputs):
                outcomes = await embed_addressed(inputs, call, self._fetcher, self._embed)
            else:
                outcomes = await self._embed(inputs, call)
            answers.note(outcomes)
        return outcomes

    async def _embed(self, inputs: Sequence[Input], call: Call) -> list[Outcome]:
        outcomes: list[Outcome | ServiceError | None] = [None] * len(inputs)

        async def picture(position: int, entry: Picture) -> None:
            outcomes[position] = await self._embed_picture(entry, call)

        async def group(entries: list[tuple[int, Text]]) -> None:
            results = await self._embed_texts([entry.text for _, entry in entries], call)
            for (position, _), result in zip(entries, results, strict=True):
                outcomes[position] = result

        work: list[Coroutine[None, None, None]] = []
        texts: list[tuple[int, Text]] = []
        for position, entry in enumerate(inputs):
            if isinstance(entry, Picture):
                work.append(picture(position, entry))
            elif isinstance(entry, Text):
                texts.append((position, entry))
            else:
                outcomes[position] = NOT_FETCHED
        work += [group(texts[start : start + _TEXTS_A_HOP]) for start in range(0, len(texts), _TEXTS_A_HOP)]
        if len(work) == 1:  # as most calls are: without tasks of its own
            await work[0]
        elif work:
            await asyncio.gather(*work)
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
            async with self._preparation.room(call):
                pixels = await self._preparation.picture(self.encoder.prepare_image, entry.data, call)
                vector = await self.images.submit(pixels, call)
        except Exception as error:
            return failed(error, call)
        return embedded(vector, call)

    async def _embed_texts(self, texts: Sequence[str], call: Call) -> list[Outcome | ServiceError]:
        if not self.has_text_tower:
            return [self._unsupported(Modality.TEXT)] * len(texts)
        try:
            prepared = await self._preparation.texts(self.encoder.prepare_text, texts, call)
        except Exception as error:
            return [failed(error, call)] * len(texts)
        waiting = [self.texts.submit(tokens, call) for tokens in prepared if isinstance(tokens, TokenisedText)]
        vectors = iter(await _settled(waiting))
        results: list[Outcome | ServiceError] = []
        for tokens in prepared:
            if isinstance(tokens, Exception):
                results.append(failed(tokens, call))
                continue
            vector = next(vectors)
            if isinstance(vector, Exception):
                results.append(failed(vector, call))
            elif isinstance(vector, BaseException):
                raise vector
            else:
                results.append(embedded(vector, call, truncated=tokens.truncated))
        return results

    def _unsupported(self, missing: Modality) -> Outcome:
        this, other = ("text", "a picture") if missing is Modality.TEXT else ("picture", "a text")
        message = no_tower(self.manifest, missing, f"a {this} cannot be embedded", f"give {other} instead")
        return Outcome(failure=ItemFailure(Reason.UNSUPPORTED, message))

    def _run_images(self, batch: Sequence[Pixels]) -> Sequence[UnitVector]:
        # A view where it is one picture: there is nothing to put side by side.
        pixels = batch[0][np.newaxis] if len(batch) == 1 else np.stack(batch)
        return list(self.encoder.encode_images(pixels))

    def _run_texts(self, batch: Sequence[TokenisedText]) -> Sequence[UnitVector]:
        return list(self.encoder.encode_texts(batch))


async def _settled(futures: Sequence[asyncio.Future[UnitVector]]) -> list[UnitVector | BaseException]:
    """What became of each; cancelling this withdraws all."""
    if len(futures) == 1:
        try:
            return [await futures[0]]
        except Exception as error:
            return [error]
    return await asyncio.gather(*futures, return_exceptions=True)
