"""The asynchronous client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.client import calls, classify_calls, example_calls, types
from twinlens.client.aio_collection_items import AsyncCollectionItems
from twinlens.client.aio_collection_operations import AsyncCollectionOperations
from twinlens.client.aio_connection import AsyncConnection
from twinlens.client.aio_label_sets import AsyncLabelSets
from twinlens.client.aio_streams import AsyncStreams
from twinlens.client.label_types import NoneOfThese
from twinlens.client.limits import ServerLimits
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.query import mix


class AsyncClient(AsyncConnection, AsyncCollectionItems, AsyncCollectionOperations, AsyncLabelSets, AsyncStreams):
    """Talks to a twinlens server without blocking the event loop; files are read in threads.

    Create it where the event loop runs. Arguments, limits, retries and errors are those of `Client`, method by method.

    Args:
        target: "HOST:PORT", or a gRPC name such as "unix:/path".
        token: Shown with every call, where the server asks for one.
        tls: The files to encrypt with; None: no encryption.
        timeout_s: Deadline of each call in seconds, with all attempts at it; None waits for ever.
        write_timeout_s: Deadline of calls that store or delete, in seconds.
        wait_for_ready: Let calls wait, up to their deadline, for a server that is not there yet, instead of failing.
        attempts: How often a call is made in all, 1: never again.
        options: Further gRPC channel options; they win over ours.

    Example:
        >>> async with AsyncClient("127.0.0.1:50051") as client:
        ...     cats, dogs = await asyncio.gather(
        ...         client.search("photos", text="a cat"), client.search("photos", text="a dog")
        ...     )
        >>> cats[0].id, dogs[0].id
        ('cat.jpg', 'dog.jpg')
    """

    async def embed_images(self, images: Iterable[types.ImageInput]) -> types.EmbedBatch:
        """Embeds pictures; see `Client.embed_images`.

        Example:
            >>> (await client.embed_images(["cat.jpg"])).vectors.shape
            (1, 384)
        """
        return await self._run(calls.embed_images(images))

    async def embed_texts(self, texts: Iterable[str]) -> types.EmbedBatch:
        """Embeds texts; see `Client.embed_texts`.

        Example:
            >>> (await client.embed_texts(["a cat"])).vectors.shape
            (1, 384)
        """
        return await self._run(calls.embed_texts(texts))

    async def embed_items(self, items: Iterable[types.StoredItem]) -> types.EmbedBatch:
        """Looks up the vectors of stored items; see `Client.embed_items`.

        Example:
            >>> (await client.embed_items([StoredItem("photos", "cat.jpg")])).vectors.shape
            (1, 384)
        """
        return await self._run(calls.embed_items(items))

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
            >>> [hit.id for hit in await client.search("photos", text="a cat", top_k=2)]
            ['cat.jpg', '2024/cat.jpg']
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
            >>> cats, dogs = await client.search_batch("photos", ["a cat", Part(item="dog.jpg")], top_k=1)
            >>> cats.hits[0].id, dogs.hits[0].id
            ('cat.jpg', 'dog.jpg')
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
        label_set: str = "",
        templates: Sequence[str] | None = None,
        top_k: int = 0,
        multi_label: bool = False,
        none_of_these: NoneOfThese | None = None,
    ) -> list[types.Classification]:
        """Labels pictures by text alone, or by examples; see `Client.classify`.

        Example:
            >>> (result,) = await client.classify(["cat.jpg"], ["cat", "dog"])
            >>> result.scores[0].label
            'cat'
        """
        return await self._run(
            classify_calls.classify(
                images,
                classify_calls.setup(
                    labels,
                    examples,
                    label_set=label_set,
                    templates=templates,
                    top_k=top_k,
                    multi_label=multi_label,
                    none_of_these=none_of_these,
                ),
            )
        )

    async def prepare_examples(
        self, examples: types.Examples | Mapping[str, Iterable[types.ImageInput]]
    ) -> PreparedExamples:
        """Embeds the pictures of examples; see `Client.prepare_examples`.

        Example:
            >>> prepared = await client.prepare_examples({"cat": ["tom.jpg"], "dog": ["rex.jpg"]})
            >>> (result,) = await client.classify(["cat.jpg"], examples=prepared)
            >>> result.scores[0].label
            'cat'
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

    async def limits(self) -> ServerLimits:
        """What the server takes at once; see `Client.limits`.

        Example:
            >>> (await client.limits()).max_inputs
            1024
        """
        return await self._run(calls.limits())
