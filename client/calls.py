"""What each method of a client asks of a server and makes of the answers, written once for both clients.

A plan is a generator: it yields calls, is sent their responses, and returns the method's result. On the way it may ask
for the server's limits and tell how far it is. `Client` carries the calls out on a blocking channel, `AsyncClient` on
an asynchronous one; neither knows more about a method than its plan.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from twinlens.client import convert, types
from twinlens.client.collection_types import OperationProgress
from twinlens.client.errors import TwinlensError, invalid
from twinlens.client.images import picture
from twinlens.client.limits import AskLimits, Kind, ServerLimits, fitting, server_limits
from twinlens.client.metadata import check_text
from twinlens.client.split import split
from twinlens.v1 import embedding_pb2, model_pb2, search_pb2

R = TypeVar("R")
T = TypeVar("T")

Service: TypeAlias = Literal["classification", "collection", "collection_operations", "embedding", "model", "search"]

# Below the limits of the wire contract, so that answers fit a message too and other callers get their turn between.
MAX_INPUTS = 256
MAX_QUERIES = 256
MAX_HITS = 20_000  # of all queries of one call together
MAX_BYTES = 16 * 1024 * 1024  # of one message of several inputs
_HIT_BYTES = 512  # a hit with some metadata


@dataclass(frozen=True, slots=True)
class Call:
    """One call to make: a request, or the messages of a stream of requests; `long` ones have no deadline."""

    service: Service
    method: str
    request: Message | tuple[Message, ...]
    writes: bool = False
    long: bool = False


Plan: TypeAlias = Generator[Call | AskLimits | OperationProgress, Any, R]

Picture: TypeAlias = bytes | types.ImageUrl | types.ItemError  # what travels of it

# Asks a server for its model and its limits.
LIMITS = Call("model", "GetModel", model_pb2.GetModelRequest())

_INPUTS = Kind(lambda told: told.max_inputs, "INVALID_INPUT", lambda dimension: 4 * dimension)


def embed_images(images: Iterable[types.ImageInput]) -> Plan[types.EmbedBatch]:
    """Embeds pictures, those that can be read."""
    return _embed(embed_input(each) for each in pictures(images))


def embed_texts(texts: Iterable[str]) -> Plan[types.EmbedBatch]:
    """Embeds texts."""
    return _embed(text_input(text) for text in several(texts, "texts"))


def embed_items(items: Iterable[types.StoredItem]) -> Plan[types.EmbedBatch]:
    """Looks up the vectors of stored items."""
    return _embed(item_input(item) for item in several(items, "items"))


def embed_input(found: Picture) -> embedding_pb2.EmbedInput | types.ItemError:
    """The wire form of a picture to embed, or why it has none."""
    if isinstance(found, types.ItemError):
        return found
    if isinstance(found, types.ImageUrl):
        return embedding_pb2.EmbedInput(image_url=found.url)
    return embedding_pb2.EmbedInput(image=found)


def text_input(text: str) -> embedding_pb2.EmbedInput | types.ItemError:
    """The wire form of a text to embed, or why it has none."""
    try:
        return embedding_pb2.EmbedInput(text=check_text(text, "the text"))
    except TwinlensError as error:
        return types.ItemError("INVALID_TEXT", error.message)


def item_input(item: types.StoredItem) -> embedding_pb2.EmbedInput | types.ItemError:
    """The wire form of an item whose vector is wanted, or why it has none."""
    try:
        return embedding_pb2.EmbedInput(item=convert.stored_item(item))
    except TwinlensError as error:
        return types.ItemError("INVALID_INPUT", error.message)


def _embed(inputs: Iterable[embedding_pb2.EmbedInput | types.ItemError]) -> Plan[types.EmbedBatch]:
    vectors: list[NDArray[np.float32] | None] = []
    errors: dict[int, types.ItemError] = {}
    truncated: list[int] = []
    model: types.ModelInfo | None = None
    for cut in split(inputs, wire_size, max_count=MAX_INPUTS, max_bytes=MAX_BYTES):
        for batch in (yield from fitting(cut, wire_size, _INPUTS)):
            start = len(vectors)
            vectors.extend([None] * len(batch))
            sent = sendable(batch, errors, start)
            if not sent:
                continue
            request = embedding_pb2.EmbedRequest(inputs=[wire for _, wire in sent])
            response: embedding_pb2.EmbedResponse = yield Call("embedding", "Embed", request)
            model = convert.model_info(response.model)
            for (position, _), result in zip(sent, response.results, strict=True):
                outcome = convert.embedding(result)
                if isinstance(outcome, types.ItemError):
                    errors[position] = outcome
                else:
                    vectors[position] = outcome
                if result.truncated:
                    truncated.append(position)
    if model is None and vectors:  # none could be sent, and rows of NaN have a length all the same
        model = (yield from get_model("")).info
    dimension = model.dimension if model else 0
    stacked = np.full((len(vectors), dimension), np.nan, dtype=np.float32)
    for position, row in enumerate(vectors):
        if row is not None:
            stacked[position] = row
    return types.EmbedBatch(vectors=stacked, errors=errors, truncated=tuple(truncated), model=model)


def search_batch(
    collection: str,
    queries: Sequence[types.QueryInput],
    *,
    modality: types.Modality,
    top_k: int,
    min_score: float | None,
    exact: bool,
    filter: str = "",  # noqa: A002 - the wire's word, as below
) -> Plan[list[types.QueryResult]]:
    """Answers queries, in order."""
    if top_k < 1:
        raise invalid(f"top_k must be at least 1, not {top_k}")
    max_count = max(1, min(MAX_QUERIES, MAX_HITS // top_k))
    setup = search_pb2.SearchRequest(
        collection=check_text(collection, "the collection's id"),
        modality=convert.modality(modality),
        top_k=min(top_k, 2**31 - 1),
        min_score=min_score,
        exact=exact,
        filter=check_text(filter, "the filter"),
    )
    kind = Kind(lambda told: told.max_queries, "INVALID_INPUT", lambda _: _HIT_BYTES * top_k, setup.ByteSize())
    results: list[types.QueryResult] = []
    wires = (_query(query) for query in several(queries, "queries"))
    for cut in split(wires, wire_size, max_count=max_count, max_bytes=MAX_BYTES):
        for batch in (yield from fitting(cut, wire_size, kind)):
            start = len(results)
            errors: dict[int, types.ItemError] = {}
            sent = sendable(batch, errors, start)
            results.extend(types.QueryResult(hits=(), error=errors.get(start + i)) for i in range(len(batch)))
            if not sent:
                continue
            request = search_pb2.SearchRequest(queries=[wire for _, wire in sent])
            request.MergeFrom(setup)
            response: search_pb2.SearchResponse = yield Call("search", "Search", request)
            for (position, _), result in zip(sent, response.results, strict=True):
                results[position] = convert.query_result(result)
    return results


def _query(given: types.QueryInput) -> search_pb2.Query | types.ItemError:
    try:
        return convert.query(given)
    except TwinlensError as error:
        return types.ItemError("INVALID_INPUT", error.message)


def search(
    collection: str,
    parts: Sequence[types.Part],
    *,
    modality: types.Modality,
    top_k: int,
    min_score: float | None,
    exact: bool,
    filter: str = "",  # noqa: A002
) -> Plan[list[types.Hit]]:
    """Answers one query, whose failure is the call's."""
    (result,) = yield from search_batch(
        collection, [parts], modality=modality, top_k=top_k, min_score=min_score, exact=exact, filter=filter
    )
    if result.error is not None:
        raise convert.error_of_call(result.error)
    return list(result.hits)


def list_models(page_token: str) -> Plan[tuple[list[types.Model], str]]:
    """One page of models and the token of the next."""
    response: model_pb2.ListModelsResponse = yield Call(
        "model", "ListModels", model_pb2.ListModelsRequest(page_token=page_token)
    )
    return [convert.model(each) for each in response.models], response.next_page_token


def get_model(name: str) -> Plan[types.Model]:
    """Describes one model."""
    response: model_pb2.GetModelResponse = yield Call("model", "GetModel", model_pb2.GetModelRequest(model=name))
    return convert.model(response.model)


def limits() -> Plan[ServerLimits]:
    """Tells what the server takes at once."""
    return server_limits((yield AskLimits()))


def pictures(images: Iterable[types.ImageInput]) -> Iterator[Picture]:
    """What travels of each picture, one after the other.

    Raises:
        TypeError: for a single picture.
    """
    if isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim < 4:
        raise TypeError("images is a list, not a single picture: put it in brackets")
    return map(picture, several(images, "images"))


def several(values: Iterable[T], name: str) -> Iterable[T]:
    """The values; one text or one picture would be taken apart letter by letter, byte by byte.

    Raises:
        TypeError: for a single text or picture.
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"{name} is a list, not a single value: put it in brackets")
    return values


def wire_size(wire: Message | Picture) -> int:
    """How many bytes it takes in a message."""
    match wire:
        case types.ItemError():
            return 0
        case bytes():
            return len(wire)
        case types.ImageUrl():
            return len(wire.url.encode())
        case _:
            return wire.ByteSize()


def sendable(
    batch: Sequence[T | types.ItemError], errors: dict[int, types.ItemError], start: int
) -> list[tuple[int, T]]:
    """Those that can be sent, with their positions; the others go to `errors`."""
    sent: list[tuple[int, T]] = []
    for position, each in enumerate(batch, start):
        if isinstance(each, types.ItemError):
            errors[position] = each
        else:
            sent.append((position, each))
    return sent
