"""The blocking client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.client import calls, classify_calls, example_calls, types
from twinlens.client.collection_items import CollectionItems
from twinlens.client.collection_operations import CollectionOperations
from twinlens.client.connection import Connection
from twinlens.client.label_sets import LabelSets
from twinlens.client.label_types import NoneOfThese
from twinlens.client.limits import ServerLimits
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.query import mix
from twinlens.client.streams import Streams


class Client(Connection, CollectionItems, CollectionOperations, LabelSets, Streams):
    """Talks to a twinlens server and waits for its answers. Safe to use from several threads, which share a connection.

    Args:
        target: "HOST:PORT", or a gRPC name such as "unix:/path".
        token: Shown with every call, where the server asks for one.
        tls: The files to encrypt with; None: no encryption. `TlsFiles()` trusts the public authorities.
        timeout_s: Deadline of each call in seconds, with all attempts at it; None waits for ever.
        write_timeout_s: Deadline of calls that store or delete, in seconds.
        wait_for_ready: Let calls wait, up to their deadline, for a server that is not there yet, instead of failing.
        attempts: How often a call is made in all, 1: never again.
        options: Further gRPC channel options; they win over ours.

    Calls that change nothing are made again where the server is not there or is full, any other only where the server
    was full and said when to come back; the waits between are random, and no shorter than the server asks for. Batches
    of any size are cut to what the server takes; their order is kept.

    Raises:
        TwinlensError: from every method, where a call fails as a whole.

    Example:
        >>> with Client("127.0.0.1:50051") as client:
        ...     for hit in client.search("photos", text="a cat on a sofa", top_k=2):
        ...         print(hit.id)
        cat.jpg
        sofa.jpg
    """

    def embed_images(self, images: Iterable[types.ImageInput]) -> types.EmbedBatch:
        """Embeds pictures. One that cannot be read fails alone.

        Args:
            images: Paths, encoded bytes, Pillow pictures, pixels (uint8 of shape (h, w), (h, w, 3) or (h, w, 4)), or
                `ImageUrl`, which the server fetches.

        Example:
            >>> batch = client.embed_images(["cat.jpg", Path("dog.png"), Path("sofa.webp").read_bytes()])
            >>> batch.vectors.shape
            (3, 384)
        """
        return self._run(calls.embed_images(images))

    def embed_texts(self, texts: Iterable[str]) -> types.EmbedBatch:
        """Embeds texts. One that cannot be embedded fails alone.

        Example:
            >>> client.embed_texts(["a cat", ""]).errors
            {1: ItemError(reason='INVALID_TEXT', message='the text is empty')}
        """
        return self._run(calls.embed_texts(texts))

    def embed_items(self, items: Iterable[types.StoredItem]) -> types.EmbedBatch:
        """Looks up the vectors of stored items. One that is not there fails alone.

        Example:
            >>> batch = client.embed_items([StoredItem("photos", "cat.jpg"), StoredItem("photos", "nobody.jpg")])
            >>> batch.vectors.shape, batch.errors[1].reason
            ((2, 384), 'NOT_FOUND')
        """
        return self._run(calls.embed_items(items))

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
            image: What to look for, as a picture; see `embed_images`.
            vector: What to look for, as a vector of the collection's space, shape (d,).
            item: The id of an item to find similar ones of; it is a hit itself.
            parts: Parts with weights of their own; negative weights push away.
            modality: Compare with the vectors of the items' pictures ("image") or captions ("text").
            top_k: How many hits, at least 1.
            min_score: Leave out hits whose cosine is lower.
            exact: Compare with every stored vector instead of asking the index.
            filter: Find only items that match, such as 'tag = "cat" AND year >= 2020'; empty: all.

        Example:
            >>> [hit.id for hit in client.search("photos", text="a cat", top_k=2)]
            ['cat.jpg', '2024/cat.jpg']
            >>> [hit.id for hit in client.search("photos", text="a cat", filter='tag = "dog" OR year > 2023')]
            ['2024/cat.jpg', 'dog.jpg']
            >>> client.search("photos", parts=[Part(image="dog.png"), Part(text="snow", weight=-0.5)])[0].id
            'dog.jpg'
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
            queries: Texts, parts, lists of parts to be mixed, or vectors; an array of shape (n, d) is n vectors.
            modality: As for `search`.
            top_k: As for `search`.
            min_score: As for `search`.
            exact: As for `search`.
            filter: As for `search`.

        Example:
            >>> for result in client.search_batch("photos", ["a cat", Part(item="dog.jpg")], top_k=1):
            ...     print(result.error or result.hits[0].id)
            cat.jpg
            dog.jpg
            >>> vectors = client.embed_texts(["a sofa", "a dog"]).vectors
            >>> [result.hits[0].id for result in client.search_batch("photos", vectors, top_k=1)]
            ['sofa.jpg', 'dog.jpg']
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
        label_set: str = "",
        templates: Sequence[str] | None = None,
        top_k: int = 0,
        multi_label: bool = False,
        none_of_these: NoneOfThese | None = None,
    ) -> list[types.Classification]:
        """Labels pictures by text alone (zero-shot), or by examples. A picture that cannot be read fails alone.

        Args:
            images: As for `embed_images`.
            labels: 1 to 10,000 distinct labels; none where there are examples or a label set, which bring theirs.
            examples: Pictures of each label, `Examples`, or what `prepare_examples` made of them. Unless prepared, one
                that cannot be used is an error that names it.
            label_set: What `put_label_set` kept under this name; it brings all but `top_k`.
            templates: Prompts around a label, the first "{}" stands for it; default: "a photo of a {}.".
            top_k: How many labels a picture, best first; 0 means all.
            multi_label: Judge each label on its own instead of against the others.
            none_of_these: When no label fits; `Classification.none_of_these` then says so.

        Example:
            >>> (result,) = client.classify(["cat.jpg"], ["cat", "dog"])
            >>> result.scores[0].label
            'cat'
            >>> by = {"cat": ["tom.jpg", "kit.jpg"], "dog": ["rex.jpg"]}
            >>> [result.scores[0].label for result in client.classify(["cat.jpg", "dog.png"], examples=by)]
            ['cat', 'dog']
        """
        return self._run(
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

    def prepare_examples(self, examples: types.Examples | Mapping[str, Iterable[types.ImageInput]]) -> PreparedExamples:
        """Embeds the pictures of examples, to label by them again and again. One that cannot be used is named.

        Raises:
            TwinlensError: INVALID_ARGUMENT where a label has no example that can be used.

        Example:
            >>> prepared = client.prepare_examples({"cat": ["tom.jpg", "broken.jpg"], "dog": ["rex.jpg"]})
            >>> [error.message for error in prepared.errors]
            ['this is not a picture in a format we know']
            >>> client.classify(["cat.jpg"], examples=prepared)[0].scores[0].label
            'cat'
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

    def limits(self) -> ServerLimits:
        """What the server takes at once; batches are cut to it without being asked.

        Example:
            >>> client.limits().max_inputs
            1024
        """
        return self._run(calls.limits())
