"""The asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import grpc
import grpc.aio
import numpy as np
from numpy.typing import NDArray

from twinlens.client import calls, example_calls, operation_calls, types
from twinlens.client.aio_collection_items import AsyncCollectionItems
from twinlens.client.aio_collection_operations import AsyncCollectionOperations
from twinlens.client.channel import (
    TIMEOUT_S,
    WRITE_TIMEOUT_S,
    ChannelOptions,
    channel_options,
    check_target,
)
from twinlens.client.collection_types import OperationProgress, ShowProgress
from twinlens.client.errors import TwinlensError, from_status
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.query import mix
from twinlens.client.stubs import stubs

R = TypeVar("R")


class AsyncClient(AsyncCollectionItems, AsyncCollectionOperations):
    """Talks to a twinlens server without blocking the event loop; files are read in threads.

    Create it where the event loop runs. Arguments, limits, retries and errors are those of `Client`, method by method.

    Args:
        target: "HOST:PORT", or a gRPC name such as "unix:/path".
        timeout_s: Deadline of each call in seconds; None waits for ever.
        write_timeout_s: Deadline of calls that store or delete, in seconds.
        wait_for_ready: Let calls wait, up to their deadline, for a server that is not there yet, instead of failing.
        options: Further gRPC channel options; they win over ours.

    Example:
        >>> async with AsyncClient("127.0.0.1:50051") as client:
        ...     cats, dogs = await asyncio.gather(
        ...         client.search("photos", text="a cat"), client.search("photos", text="a dog")
        ...     )
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
        self._channel = grpc.aio.insecure_channel(self.target, options=channel_options(self.target, options))
        self._stubs = stubs(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; calls still running fail.

        Example:
            >>> await client.close()
        """
        await self._channel.close()

    async def wait_ready(self, timeout_s: float = 10.0) -> None:
        """Waits until the server takes connections.

        Raises:
            TwinlensError: UNAVAILABLE if it does not within `timeout_s` seconds.

        Example:
            >>> await client.wait_ready(timeout_s=30)
        """
        try:
            await asyncio.wait_for(self._channel.channel_ready(), timeout_s)
        except TimeoutError:
            raise TwinlensError("UNAVAILABLE", f"no server answers at {self.target} within {timeout_s:g} s") from None

    async def embed_images(self, images: Iterable[types.ImageInput]) -> types.EmbedBatch:
        """Embeds pictures; see `Client.embed_images`.

        Example:
            >>> (await client.embed_images(["cat.jpg"])).vectors.shape
            (1, 512)
        """
        return await self._run(calls.embed_images(images))

    async def embed_texts(self, texts: Iterable[str]) -> types.EmbedBatch:
        """Embeds texts; see `Client.embed_texts`.

        Example:
            >>> (await client.embed_texts(["a cat"])).vectors.shape
            (1, 512)
        """
        return await self._run(calls.embed_texts(texts))

    async def search(
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
        """Finds the items nearest to a query, best first; see `Client.search`.

        Example:
            >>> await client.search("photos", text="a cat", top_k=3)
        """
        query = mix(text=text, image=image, vector=vector, item=item, parts=parts)
        plan = calls.search(
            collection, query, modality=modality, top_k=top_k, min_score=min_score, exact=exact, filter=filter
        )
        return await self._run(plan)

    async def search_batch(
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
        """Answers several queries, in order; see `Client.search_batch`.

        Example:
            >>> await client.search_batch("photos", ["a cat", Part(item="dog.jpg")], top_k=1)
        """
        plan = calls.search_batch(
            collection, queries, modality=modality, top_k=top_k, min_score=min_score, exact=exact, filter=filter
        )
        return await self._run(plan)

    async def classify(
        self,
        images: Iterable[types.ImageInput],
        labels: Sequence[str] = (),
        *,
        examples: example_calls.ExampleInput | None = None,
        templates: Sequence[str] | None = None,
        top_k: int = 0,
        multi_label: bool = False,
    ) -> list[types.Classification]:
        """Labels pictures by text alone, or by examples; see `Client.classify`.

        Example:
            >>> (result,) = await client.classify(["cat.jpg"], ["cat", "dog"])
        """
        return await self._run(
            example_calls.classify(images, labels, examples, templates=templates, top_k=top_k, multi_label=multi_label)
        )

    async def prepare_examples(
        self, examples: types.Examples | Mapping[str, Iterable[types.ImageInput]]
    ) -> PreparedExamples:
        """Embeds the pictures of examples; see `Client.prepare_examples`.

        Example:
            >>> prepared = await client.prepare_examples({"cat": ["tom.jpg"], "dog": ["rex.jpg"]})
            >>> await client.classify(["cat.jpg"], examples=prepared)
        """
        return await self._run(example_calls.prepare(examples))

    async def models(self) -> list[types.Model]:
        """The models the server has, the active one first.

        Example:
            >>> (await client.models())[0].info.name
            'starter'
        """
        return [each async for each in self._pages(calls.list_models)]

    async def model(self, name: str = "") -> types.Model:
        """One model: "name" or "name/version"; empty for the active one.

        Example:
            >>> (await client.model()).info.dimension
            384
        """
        return await self._run(calls.get_model(name))

    async def _pages(self, page: Callable[[str], calls.Plan[tuple[list[R], str]]]) -> AsyncIterator[R]:
        token = ""
        while True:
            values, token = await self._run(page(token))
            for value in values:
                yield value
            if not token:
                return

    async def _run(self, plan: calls.Plan[R]) -> R:
        response: Any = None
        while True:
            step, result = await asyncio.to_thread(_advance, plan, response)
            if step is None:
                return result  # type: ignore[return-value]  # a finished plan has a result
            response = await self._answer(step)

    async def _stream(self, stream: operation_calls.Stream, progress: ShowProgress | None) -> AsyncIterator[object]:
        answer: Any = None
        try:
            answer = self._begin(stream.call, None)
            async for message in answer:
                for value in stream.read(message):
                    if not isinstance(value, OperationProgress):
                        yield value
                    elif progress is not None:
                        progress(value)
        except grpc.aio.AioRpcError as error:
            raise from_status(error.code(), error.details(), self.target, None) from None
        except grpc.aio.UsageError:
            raise TwinlensError("CANCELLED", "the client is closed") from None
        finally:
            if answer is not None:
                answer.cancel()

    def _begin(self, call: calls.Call, timeout_s: float | None) -> Any:
        method = getattr(self._stubs[call.service], call.method)
        request = iter(call.request) if isinstance(call.request, tuple) else call.request
        return method(request, timeout=timeout_s, wait_for_ready=self._wait_for_ready)

    async def _answer(self, call: calls.Call) -> Any:
        timeout_s = None if call.long else self._write_timeout_s if call.writes else self._timeout_s
        try:
            return await self._begin(call, timeout_s)
        except grpc.aio.AioRpcError as error:
            raise from_status(error.code(), error.details(), self.target, timeout_s) from None
        except grpc.aio.UsageError:  # what grpc raises on a closed channel
            raise TwinlensError("CANCELLED", "the client is closed") from None


def _advance(plan: calls.Plan[R], response: Any) -> tuple[calls.Call | None, R | None]:
    """The next call, or None and the result; a StopIteration could not leave a thread."""
    try:
        return plan.send(response), None
    except StopIteration as stop:
        return None, stop.value
