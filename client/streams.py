"""What a blocking client does with streams of any length, in the memory of a few messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

from google.protobuf.message import Message

from twinlens.client import classify_calls, example_calls, stream_calls, types
from twinlens.client.calls import Plan, Service
from twinlens.client.collection_types import OperationProgress, ShowProgress
from twinlens.client.label_types import NoneOfThese
from twinlens.client.stream_types import Embedding, EmbedInput

R = TypeVar("R")


class Streams(ABC):
    """The part of a `Client` that streams both ways."""

    def embed_stream(
        self, inputs: Iterable[EmbedInput], *, progress: ShowProgress | None = None
    ) -> Iterator[Embedding]:
        """Embeds any number of inputs, in order, while more are read: neither side ever holds more than a few messages.

        It gives way to calls of others, as storing does, and has no deadline. Leaving the iteration ends it.

        Args:
            inputs: Pictures as for `embed_images`, `TextInput`, `StoredItem`; read in another thread, a little ahead.
            progress: Told how many are done.

        Example:
            >>> for each in client.embed_stream(["cat.jpg", TextInput("a cat"), StoredItem("photos", "cat.jpg")]):
            ...     print(each.error or each.vector.shape)
            (384,)
            (384,)
            (384,)
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
    ) -> Iterator[types.Classification]:
        """Labels any number of pictures, in order, as `embed_stream` embeds them.

        Args:
            images: As for `classify`; read in another thread, a little ahead.
            labels: As for `classify`.
            examples: As for `classify`.
            label_set: As for `classify`.
            templates: As for `classify`.
            top_k: As for `classify`.
            multi_label: As for `classify`.
            none_of_these: As for `classify`.
            progress: Told how many are done.

        Example:
            >>> for result in client.classify_stream(["cat.jpg"], ["cat", "dog"], top_k=1):
            ...     print(result.error or result.scores[0].label)
            cat
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

    def _exchanged(self, begun: Plan[stream_calls.Exchange[R]], progress: ShowProgress | None) -> Iterator[R]:
        exchange = self._run(begun)
        done = 0
        with closing(
            self._exchange(exchange.service, exchange.method, exchange.requests, opening=exchange.opening)
        ) as answers:
            for answer in answers:
                results = list(exchange.read(answer))
                done += len(results)
                if progress is not None and results:
                    progress(OperationProgress(exchange.step, done, exchange.total))
                yield from results
        rest = list(exchange.rest())
        if progress is not None and rest:
            progress(OperationProgress(exchange.step, done + len(rest), exchange.total))
        yield from rest

    @abstractmethod
    def _run(self, plan: Plan[R]) -> R: ...

    @abstractmethod
    def _exchange(
        self, service: Service, method: str, requests: Iterator[Message], *, opening: int = 0
    ) -> Generator[Any, None, None]: ...
