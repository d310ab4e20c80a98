"""Streams both ways: what goes out message by message, and whose each of the answers is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from google.protobuf.message import Message

from twinlens.client import convert, types
from twinlens.client.calls import (
    MAX_BYTES,
    Picture,
    Plan,
    Service,
    embed_input,
    item_input,
    pictures,
    several,
    text_input,
    wire_size,
)
from twinlens.client.channel import MAX_MESSAGE_BYTES
from twinlens.client.classify_calls import LabelSetup, check_examples
from twinlens.client.images import picture
from twinlens.client.limits import AskLimits, Told
from twinlens.client.split import split
from twinlens.client.stream_types import Embedding, EmbedInput, TextInput
from twinlens.client.types import StoredItem
from twinlens.v1 import classification_pb2, embedding_pb2

R = TypeVar("R")

Wire: TypeAlias = embedding_pb2.EmbedInput | Picture

# Enough to keep the towers busy, few enough that a stream is never far ahead of its answers.
_MESSAGE_ITEMS = 32
# Around what a message holds.
_FRAME_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Exchange(Generic[R]):
    """A call that streams both ways.

    Attributes:
        service: Whose method.
        method: Which.
        requests: What to send; advanced in another thread than the answers are read in.
        read: Makes results of one answer, in the order of what was given.
        rest: What is left when all answers are read: of inputs that could not be sent.
        step: What happens to the inputs, for whoever watches.
        total: How many there are; 0 where that is not known.
        opening: How many of the first messages say what the others are about.
    """

    service: Service
    method: str
    requests: Iterator[Message]
    read: Callable[[Any], Iterator[R]]
    rest: Callable[[], Iterator[R]]
    step: str
    total: int
    opening: int = 0


def embed(inputs: Iterable[EmbedInput]) -> Plan[Exchange[Embedding]]:
    """Embeds inputs, those that can be sent."""
    given = several(inputs, "inputs")
    room = _room((yield AskLimits()))
    turns: _Turns[Embedding] = _Turns(lambda error: Embedding(None, error))
    wires = (_small(_embed_input(each), room) for each in given)

    def message(batch: Sequence[Wire]) -> tuple[Message, list[int]]:
        sent = [(i, wire) for i, wire in enumerate(batch) if isinstance(wire, embedding_pb2.EmbedInput)]
        return embedding_pb2.EmbedStreamRequest(inputs=[wire for _, wire in sent]), [i for i, _ in sent]

    def read(response: embedding_pb2.EmbedStreamResponse) -> Iterator[Embedding]:
        model = convert.model_info(response.model)
        return turns.answered([_embedding(result, model) for result in response.results])

    requests = _messages(wires, turns, message, _MESSAGE_ITEMS, room)
    return Exchange("embedding", "EmbedStream", requests, read, turns.rest, "embedded", _total(inputs))


def classify(images: Iterable[types.ImageInput], chosen: Plan[LabelSetup]) -> Plan[Exchange[types.Classification]]:
    """Labels pictures, those that can be sent."""
    found = pictures(images)
    chosen_from = yield from chosen
    told: Told = yield AskLimits()
    room = _room(told)
    turns: _Turns[types.Classification] = _Turns(lambda error: types.Classification((), error))
    wires = (_small(each, room) for each in found)
    answers = room // max(1, chosen_from.answer_bytes)

    def message(batch: Sequence[Wire]) -> tuple[Message, list[int]]:
        encoded = [(i, each) for i, each in enumerate(batch) if isinstance(each, bytes)]
        named = [(i, each.url) for i, each in enumerate(batch) if isinstance(each, types.ImageUrl)]
        request = classification_pb2.ClassifyStreamRequest(
            images=[data for _, data in encoded], image_urls=[url for _, url in named]
        )
        # The results of pictures that are fetched come after the others.
        return request, [i for i, _ in [*encoded, *named]]

    def requests() -> Iterator[Message]:
        yield classification_pb2.ClassifyStreamRequest(setup=chosen_from.wire)
        yield from _messages(wires, turns, message, max(1, min(_MESSAGE_ITEMS, chosen_from.max_count, answers)), room)

    def read(response: classification_pb2.ClassifyStreamResponse) -> Iterator[types.Classification]:
        check_examples(response.examples)
        if not response.results:  # the answer to the setup
            return iter(())
        return turns.answered([convert.classification(result) for result in response.results])

    return Exchange("classification", "ClassifyStream", requests(), read, turns.rest, "labelled", _total(images), 1)


class _Turns(Generic[R]):
    """Notes what is sent, and puts what comes back into the order of what was given.

    What is noted in one thread is taken in another; messages are answered in their order.

    Args:
        failed: The result of an input that could not be sent.
    """

    def __init__(self, failed: Callable[[types.ItemError], R]) -> None:
        self._failed = failed
        self._noted: deque[tuple[list[types.ItemError | None], list[int]]] = deque()

    def note(self, errors: list[types.ItemError | None], order: list[int]) -> None:
        """Notes a batch: why an input of it could not be sent, and the positions of the others as they were sent."""
        self._noted.append((errors, order))

    def answered(self, results: Sequence[R]) -> Iterator[R]:
        """The results of the next message, and before them those of batches of which nothing could be sent."""
        order: list[int] = []
        while not order:
            errors, order = self._noted.popleft()
            yield from self._merged(errors, order, results if order else ())

    def rest(self) -> Iterator[R]:
        """Results of batches of which nothing could be sent, behind the last message."""
        while self._noted:
            yield from self._merged(*self._noted.popleft(), ())

    def _merged(self, errors: list[types.ItemError | None], order: list[int], results: Sequence[R]) -> Iterator[R]:
        placed = dict(zip(order, results, strict=True))
        for position, error in enumerate(errors):
            yield placed[position] if error is None else self._failed(error)


def _messages(
    wires: Iterator[Wire],
    turns: _Turns[R],
    message: Callable[[Sequence[Wire]], tuple[Message, list[int]]],
    max_count: int,
    room: int,
) -> Iterator[Message]:
    for batch in split(wires, wire_size, max_count=max_count, max_bytes=min(MAX_BYTES, room)):
        errors = [each if isinstance(each, types.ItemError) else None for each in batch]
        request, order = message(batch)
        turns.note(errors, order)
        if order:
            yield request


def _embed_input(given: EmbedInput) -> embedding_pb2.EmbedInput | types.ItemError:
    if isinstance(given, TextInput):
        return text_input(given.text)
    if isinstance(given, StoredItem):
        return item_input(given)
    return embed_input(picture(given))


def _embedding(wire: embedding_pb2.EmbedResult, model: types.ModelInfo) -> Embedding:
    outcome = convert.embedding(wire)
    if isinstance(outcome, types.ItemError):
        return Embedding(None, outcome, model=model)
    return Embedding(outcome, truncated=wire.truncated, model=model)


def _room(told: Told) -> int:
    """What one message may hold."""
    return max(_FRAME_BYTES, min(told.limits.max_message_bytes or MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES) - _FRAME_BYTES)


def _small(wire: Wire, room: int) -> Wire:
    if isinstance(wire, types.ItemError) or wire_size(wire) <= room:
        return wire
    return types.ItemError(
        "INVALID_INPUT",
        f"{wire_size(wire) / 2**20:.1f} MiB are more than the server takes at once",
    )


def _total(given: Iterable[object]) -> int:
    return len(given) if isinstance(given, Sized) else 0
