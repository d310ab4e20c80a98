"""The blocking client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray

from twinlens.client import calls, example_calls, operation_calls, types
from twinlens.client.channel import (
    TIMEOUT_S,
    WRITE_TIMEOUT_S,
    ChannelOptions,
    channel_options,
    check_target,
)
from twinlens.client.collection_items import CollectionItems
from twinlens.client.collection_operations import CollectionOperations
from twinlens.client.collection_types import OperationProgress, ShowProgress
from twinlens.client.errors import TwinlensError, from_status
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.query import mix
from twinlens.client.stubs import stubs

R = TypeVar("R")


class Client(CollectionItems, CollectionOperations):
    """Talks to a twinlens server and waits for its answers. Safe to use from several threads.

    Args:
        target: "HOST:PORT", or a gRPC name such as "unix:/path".
        timeout_s: Deadline of each call in seconds; None waits for ever.
        write_timeout_s: Deadline of calls that store or delete, in seconds.
        wait_for_ready: Let calls wait, up to their deadline, for a server that is not there yet, instead of failing.
        options: Further gRPC channel options; they win over ours.

    Calls that change nothing are tried again, up to four times in all with random waits between, where the server is
    not there or says that it is overloaded. Batches of any size are cut to what a server takes; their order is kept.

    Raises:
        TwinlensError: from every method, where a call fails as a whole.

    Example:
        >>> with Client("127.0.0.1:50051") as client:
        ...     for hit in client.search("photos", text="a cat on a sofa", top_k=5):
        ...         print(hit.id, hit.score)
    """

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float | None = TIMEOUT_S,
        write_timeout_s: float | None = WRITE_TIMEOUT_S,
        wait_for_ready: bool = False,
        options: ChannelOptions = (),
    ) -> None:
        self.target = check_target(target)
        self._timeout_s = timeout_s
        self._write_timeout_s = write_timeout_s
        self._wait_for_ready = wait_for_ready
        self._channel = grpc.insecure_channel(self.target, options=channel_options(self.target, options))
        self._stubs = stubs(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; calls still running fail.

        Example:
            >>> client = Client("127.0.0.1:50051")
            >>> client.close()
        """
        self._channel.close()

    def wait_ready(self, timeout_s: float = 10.0) -> None:
        """Waits until the server takes connections.

        Raises:
            TwinlensError: UNAVAILABLE if it does not within `timeout_s` seconds.

        Example:
            >>> client.wait_ready(timeout_s=30)
        """
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise TwinlensError("UNAVAILABLE", f"no server answers at {self.target} within {timeout_s:g} s") from None

    def embed_images(self, images: Iterable[types.ImageInput]) -> types.EmbedBatch:
        """Embeds pictures. One that cannot be read fails alone.

        Example:
            >>> batch = client.embed_images(["cat.jpg", Path("dog.png"), open("sofa.webp", "rb").read()])
            >>> batch.vectors.shape
            (3, 512)
        """
        return self._run(calls.embed_images(images))

    def embed_texts(self, texts: Iterable[str]) -> types.EmbedBatch:
        """Embeds texts. One that cannot be embedded fails alone.

        Example:
            >>> client.embed_texts(["a cat", ""]).errors
            {1: ItemError(reason='INVALID_TEXT', message='the text is empty')}
        """
        return self._run(calls.embed_texts(texts))

    def search(
        self,
        collection: str,
        *,
        text: str | None = None,
        image: types.ImageInput | None = None,
        vector: NDArray[np.floating[Any]] | Sequence[float] | None = None,
        item: str | None = None,
        parts: Sequence[types.Part] = (),
        modality: types.Modality = "image",
        top_k: int = 10,
        min_score: float | None = None,
        exact: bool = False,
        filter: str = "",  # noqa: A002 - the wire's word, as below
    ) -> list[types.Hit]:
        """Finds the items nearest to a query, best first. Several of `text`, `image`, … are mixed with equal weight.

        Args:
            collection: The collection's id.
            text: What to look for, in words.
            image: What to look for, as a picture: path, encoded bytes or a Pillow picture.
            vector: What to look for, as a vector of the collection's space, shape (d,).
            item: The id of an item to find similar ones of; it is a hit itself.
            parts: Parts with weights of their own; negative weights push away.
            modality: Compare with the vectors of the items' pictures ("image") or captions ("text").
            top_k: How many hits, at least 1.
            min_score: Leave out hits whose cosine is lower.
            exact: Compare with every stored vector instead of asking the index.
            filter: Find only items that match, such as 'tag = "cat" AND year >= 2020'; empty: all.

        Example:
            >>> client.search("photos", text="a cat", top_k=3)
            >>> client.search("photos", text="a cat", filter='place.country = "PT" AND NOT tags:"indoors"')
            >>> client.search("photos", parts=[Part(image="dog.jpg"), Part(text="snow", weight=-0.5)])
        """
        query = mix(text=text, image=image, vector=vector, item=item, parts=parts)
        plan = calls.search(
            collection, query, modality=modality, top_k=top_k, min_score=min_score, exact=exact, filter=filter
        )
        return self._run(plan)

    def search_batch(
        self,
        collection: str,
        queries: Sequence[types.QueryInput],
        *,
        modality: types.Modality = "image",
        top_k: int = 10,
        min_score: float | None = None,
        exact: bool = False,
        filter: str = "",  # noqa: A002
    ) -> list[types.QueryResult]:
        """Answers several queries, in order. One that the server cannot answer fails alone.

        Args:
            collection: The collection's id.
            queries: Texts, parts, or lists of parts to be mixed.
            modality: As for `search`.
            top_k: As for `search`.
            min_score: As for `search`.
            exact: As for `search`.
            filter: As for `search`.

        Example:
            >>> for result in client.search_batch("photos", ["a cat", Part(item="dog.jpg")], top_k=1):
            ...     print(result.error or result.hits[0].id)
        """
        plan = calls.search_batch(
            collection, queries, modality=modality, top_k=top_k, min_score=min_score, exact=exact, filter=filter
        )
        return self._run(plan)

    def classify(
        self,
        images: Iterable[types.ImageInput],
        labels: Sequence[str] = (),
        *,
        examples: example_calls.ExampleInput | None = None,
        templates: Sequence[str] | None = None,
        top_k: int = 0,
        multi_label: bool = False,
    ) -> list[types.Classification]:
        """Labels pictures by text alone (zero-shot), or by examples. A picture that cannot be read fails alone.

        Args:
            images: Paths, encoded bytes or Pillow pictures.
            labels: 1 to 10,000 distinct labels; none where there are examples, which bring theirs.
            examples: Pictures of each label, `Examples`, or what `prepare_examples` made of them. Unless prepared, one
                that cannot be used is an error that names it.
            templates: Prompts around a label, the first "{}" stands for it; default: "a photo of a {}.".
            top_k: How many labels a picture, best first; 0 means all.
            multi_label: Judge each label on its own instead of against the others.

        Example:
            >>> (result,) = client.classify(["cat.jpg"], ["cat", "dog"])
            >>> result.scores[0].label
            'cat'
            >>> client.classify(["cat.jpg"], examples={"cat": ["tom.jpg", "kit.jpg"], "dog": ["rex.jpg"]})
        """
        return self._run(
            example_calls.classify(images, labels, examples, templates=templates, top_k=top_k, multi_label=multi_label)
        )

    def prepare_examples(self, examples: types.Examples | Mapping[str, Iterable[types.ImageInput]]) -> PreparedExamples:
        """Embeds the pictures of examples, to label by them again and again. One that cannot be used is named.

        Raises:
            TwinlensError: INVALID_ARGUMENT where a label has no example that can be used.

        Example:
            >>> prepared = client.prepare_examples({"cat": ["tom.jpg", "broken.jpg"], "dog": ["rex.jpg"]})
            >>> [error.message for error in prepared.errors]
            ['this is not a picture in a format we know']
            >>> client.classify(["cat.jpg"], examples=prepared)
        """
        return self._run(example_calls.prepare(examples))

    def models(self) -> list[types.Model]:
        """The models the server has, the active one first.

        Example:
            >>> client.models()[0].info.name
            'starter'
        """
        return list(self._pages(calls.list_models))

    def model(self, name: str = "") -> types.Model:
        """One model: "name" or "name/version"; empty for the active one.

        Example:
            >>> client.model().info.dimension
            384
        """
        return self._run(calls.get_model(name))

    def _pages(self, page: Callable[[str], calls.Plan[tuple[list[R], str]]]) -> Iterator[R]:
        token = ""
        while True:
            values, token = self._run(page(token))
            yield from values
            if not token:
                return

    def _run(self, plan: calls.Plan[R]) -> R:
        response: Any = None
        while True:
            try:
                call = plan.send(response)
            except StopIteration as stop:
                result: R = stop.value
                return result
            response = self._answer(call)

    def _stream(self, stream: operation_calls.Stream, progress: ShowProgress | None) -> Iterator[object]:
        answer = self._answer(stream.call)
        try:
            for message in answer:
                for value in stream.read(message):
                    if not isinstance(value, OperationProgress):
                        yield value
                    elif progress is not None:
                        progress(value)
        except grpc.RpcError as error:
            raise from_status(error.code(), error.details(), self.target, None) from None
        finally:
            answer.cancel()

    def _answer(self, call: calls.Call) -> Any:
        method = getattr(self._stubs[call.service], call.method)
        request = iter(call.request) if isinstance(call.request, tuple) else call.request
        timeout_s = None if call.long else self._write_timeout_s if call.writes else self._timeout_s
        try:
            return method(request, timeout=timeout_s, wait_for_ready=self._wait_for_ready)
        except grpc.RpcError as error:  # raised errors are calls too, with a code and details
            raise from_status(error.code(), error.details(), self.target, timeout_s) from None
        except ValueError:  # what grpc raises on a closed channel
            raise TwinlensError("CANCELLED", "the client is closed") from None
