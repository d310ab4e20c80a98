"""What each method of a client asks of a server and makes of the answers, written once for both clients.

A plan is a generator: it yields calls, is sent their responses, and returns the method's result. `Client` carries the
calls out on a blocking channel, `AsyncClient` on an asynchronous one; neither knows more about a method than its plan.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from twinlens.client import convert, types
from twinlens.client.errors import TwinlensError, invalid
from twinlens.client.images import MAX_IMAGE_BYTES, read_image
from twinlens.client.metadata import check_text
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.split import split
from twinlens.v1 import classification_pb2, embedding_pb2, model_pb2, search_pb2

R = TypeVar("R")
T = TypeVar("T")

Service: TypeAlias = Literal["classification", "collection", "collection_operations", "embedding", "model", "search"]

# Below the limits of the wire contract, so that answers fit a message too and other callers get their turn between.
MAX_INPUTS = 256
MAX_QUERIES = 256
MAX_HITS = 20_000  # of all queries of one call together
MAX_SCORES = 500_000  # of all pictures of one call together
MAX_ANSWERED_LABEL_BYTES = 32 * 1024 * 1024  # of all labels of one answer together
MAX_BYTES = 16 * 1024 * 1024  # of one message of several inputs


@dataclass(frozen=True, slots=True)
class Call:
    """One call to make: a request, or the messages of a stream of requests; `long` ones have no deadline."""

    service: Service
    method: str
    request: Message | tuple[Message, ...]
    writes: bool = False
    long: bool = False


Plan: TypeAlias = Generator[Call, Any, R]


def embed_images(images: Iterable[types.ImageInput]) -> Plan[types.EmbedBatch]:
    """Embeds pictures, those that can be read."""
    return _embed(_image_input(image) for image in several(images, "images"))


def embed_texts(texts: Iterable[str]) -> Plan[types.EmbedBatch]:
    """Embeds texts."""
    return _embed(_text_input(text) for text in several(texts, "texts"))


def _image_input(image: types.ImageInput) -> embedding_pb2.EmbedInput | types.ItemError:
    data = read_image(image)
    return data if isinstance(data, types.ItemError) else embedding_pb2.EmbedInput(image=data)


def _text_input(text: str) -> embedding_pb2.EmbedInput | types.ItemError:
    try:
        return embedding_pb2.EmbedInput(text=check_text(text, "the text"))
    except TwinlensError as error:
        return types.ItemError("INVALID_TEXT", error.message)


def _embed(inputs: Iterable[embedding_pb2.EmbedInput | types.ItemError]) -> Plan[types.EmbedBatch]:
    vectors: list[NDArray[np.float32] | None] = []
    errors: dict[int, types.ItemError] = {}
    truncated: list[int] = []
    model: types.ModelInfo | None = None
    for batch in split(inputs, wire_size, max_count=MAX_INPUTS, max_bytes=MAX_BYTES):
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
    results: list[types.QueryResult] = []
    wires = (_query(query) for query in several(queries, "queries"))
    for batch in split(wires, wire_size, max_count=max_count, max_bytes=MAX_BYTES):
        start = len(results)
        errors: dict[int, types.ItemError] = {}
        sent = sendable(batch, errors, start)
        results.extend(types.QueryResult(hits=(), error=errors.get(start + i)) for i in range(len(batch)))
        if not sent:
            continue
        request = search_pb2.SearchRequest(
            collection=check_text(collection, "the collection's id"),
            queries=[wire for _, wire in sent],
            modality=convert.modality(modality),
            top_k=min(top_k, 2**31 - 1),
            min_score=min_score,
            exact=exact,
            filter=check_text(filter, "the filter"),
        )
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


def classify(
    images: Iterable[types.ImageInput],
    labels: Sequence[str],
    *,
    templates: Sequence[str] | None,
    top_k: int,
    multi_label: bool,
    examples: PreparedExamples | None = None,
) -> Plan[list[types.Classification]]:
    """Labels pictures, those that can be read; by `examples` where these are given."""
    if examples is None and (isinstance(labels, str) or not labels):
        raise invalid("labels is a list of at least one text; or give examples")
    count = len(labels) if examples is None else examples.labels
    scores_each = min(top_k, count) if top_k > 0 else count
    shown = () if examples is None else {example.label for example in examples.wire.examples}
    sizes = (len(check_text(label, "a label").encode()) for label in shown or labels)
    longest = sorted(sizes, reverse=True)[:scores_each]
    max_labelled = MAX_ANSWERED_LABEL_BYTES // max(1, sum(longest))
    max_count = max(1, min(MAX_INPUTS, MAX_SCORES // scores_each, max_labelled))
    room = MAX_IMAGE_BYTES - (0 if examples is None else examples.size_bytes)
    if room < MAX_BYTES:
        raise invalid("the examples are too many to be sent with pictures: store them in a collection, and name it")
    results: list[types.Classification] = []
    inputs = (_fitting(read_image(image), room) for image in several(images, "images"))
    for batch in split(inputs, wire_size, max_count=max_count, max_bytes=MAX_BYTES):
        errors: dict[int, types.ItemError] = {}
        start = len(results)
        sent = sendable(batch, errors, start)
        results += [types.Classification(scores=(), error=errors.get(start + i)) for i in range(len(batch))]
        if not sent:
            continue
        request = classification_pb2.ClassifyRequest(
            images=[data for _, data in sent],
            labels=labels,
            templates=[check_text(template, "a template") for template in templates or ()],
            top_k=min(top_k, count),
            multi_label=multi_label,
            examples=None if examples is None else examples.wire,
        )
        response: classification_pb2.ClassifyResponse = yield Call("classification", "Classify", request)
        if failures := response.examples.failures:
            which = f"an example of label {failures[0].label!r}"
            raise convert.error_of_examples(which, convert.error(failures[0].error), len(failures))
        for (position, _), result in zip(sent, response.results, strict=True):
            results[position] = convert.classification(result)
    return results


def _fitting(data: bytes | types.ItemError, room: int) -> bytes | types.ItemError:
    if isinstance(data, types.ItemError) or len(data) <= room:
        return data
    return types.ItemError("INVALID_IMAGE", f"{len(data) / 2**20:.0f} MiB do not fit a message beside the examples")


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


def several(values: Iterable[T], name: str) -> Iterable[T]:
    """The values; one text or one picture would be taken apart letter by letter, byte by byte.

    Raises:
        TypeError: for a single text or picture.
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"{name} is a list, not a single value: put it in brackets")
    return values


def wire_size(wire: Message | bytes | types.ItemError) -> int:
    """How many bytes it takes in a message."""
    if isinstance(wire, types.ItemError):
        return 0
    return len(wire) if isinstance(wire, bytes) else wire.ByteSize()


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
