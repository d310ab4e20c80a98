"""What an asynchronous client does with streams of any length, in the memory of a few messages."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from google.protobuf.message import Message

from twinlens.client import classify_calls, example_calls, stream_calls, types
from twinlens.client.calls import Plan, Service
from twinlens.client.collection_types import OperationProgress, ShowProgress
from twinlens.client.label_types import NoneOfThese
from twinlens.client.stream_types import Embedding, EmbedInput

R = TypeVar("R")


class AsyncStreams(ABC):
    """The part of an `AsyncClient` that streams both ways; see `Streams`, method by method."""

    def embed_stream(
        self, inputs: Iterable[EmbedInput], *, progress: ShowProgress | None = None
    ) -> AsyncIterator[Embedding]:
        """Embeds any number of inputs; see `Client.embed_stream`. The iterable is advanced in threads.

        Example:
            >>> [each.vector.shape async for each in client.embed_stream(["cat.jpg", TextInput("a cat")])]
            [(384,), (384,)]
        """
        return self._exchanged(stream_calls.embed(inputs), progress)

    def classify_stream(
        self,
        images: Iterable[types.ImageInput],
        labels: Sequence[str] = (),
        *,
        examples: example_calls.ExampleInput | None = None,
        label_set: str = "",
        templates: Sequence[str] | None = None,
        top_k: int = 0,
        multi_label: bool = False,
        none_of_these: NoneOfThese | None = None,
        progress: ShowProgress | None = None,
    ) -> AsyncIterator[types.Classification]:
        """Labels any number of pictures; see `Client.classify_stream`. The iterable is advanced in threads.

        Example:
            >>> results = client.classify_stream(["cat.jpg"], ["cat", "dog"], top_k=1)
            >>> [result.scores[0].label async for result in results]
            ['cat']
        """
        chosen = classify_calls.setup(
            labels,
            examples,
            label_set=label_set,
            templates=templates,
            top_k=top_k,
            multi_label=multi_label,
            none_of_these=none_of_these,
        )
        return self._exchanged(stream_calls.classify(images, chosen), progress)

    async def _exchanged(
        self, begun: Plan[stream_calls.Exchange[R]], progress: ShowProgress | None
    ) -> AsyncIterator[R]:
        exchange = await self._run(begun)
        done = 0
        answers = self._exchange(exchange.service, exchange.method, exchange.requests, opening=exchange.opening)
        async with aclosing(answers):
            async for answer in answers:
                results = await asyncio.to_thread(_read, exchange, answer)
                done += len(results)
                if progress is not None and results:
                    progress(OperationProgress(exchange.step, done, exchange.total))
                for result in results:
                    yield result
        rest = list(exchange.rest())
        if progress is not None and rest:
            progress(OperationProgress(exchange.step, done + len(rest), exchange.total))
        for result in rest:
            yield result

    @abstractmethod
    async def _run(self, plan: Plan[R]) -> R: ...

    @abstractmethod
    def _exchange(
        self, service: Service, method: str, requests: Iterator[Message], *, opening: int = 0
    ) -> AsyncGenerator[Any, None]: ...


def _read(exchange: stream_calls.Exchange[R], answer: Any) -> list[R]:
    return list(exchange.read(answer))
