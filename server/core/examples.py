"""Examples of labels: pictures, vectors and stored items, brought to vectors once and kept."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index.contract import CollectionLike
from twinlens.index.item import Modality
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Outcome, Picture
from twinlens.server.core.errors import Code, ItemFailure, Reason, ServiceError, invalid_argument
from twinlens.server.core.example_pile import ExamplePile, NeighbourPile, PrototypePile
from twinlens.server.core.example_scoring import ExampleRule
from twinlens.server.core.labels import check_length, quoted
from twinlens.server.core.lookup import RawVector, StoredItem, item_vector, refused, unit_vector
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.shared_cache import SharedCache


@dataclass(frozen=True, slots=True)
class Example:
    """Something that shows a label; `content` None: the caller set nothing."""

    label: str
    content: Picture | RawVector | StoredItem | None


@dataclass(frozen=True, slots=True)
class ExampleSource:
    """Where examples come from.

    Attributes:
        read: Gives those that came with the request. Called in a worker thread, and only where they are not kept.
        digest: Of all that `read` gives.
        size_bytes: What these take.
        pictures: How many of these have to be embedded.
        collection: Whose items are meant.
        label_key: Every item of the collection with a label under this key of its metadata is an example; empty: none.
        space_id: The space that the caller takes the vectors to belong to; empty: not told.
    """

    read: Callable[[], Sequence[Example]]
    digest: str
    size_bytes: int
    pictures: int
    collection: CollectionLike | None = None
    label_key: str = ""
    space_id: str = ""


@dataclass(frozen=True, slots=True)
class UnusableExample:
    """An example that was left out, and why."""

    position: int
    label: str
    failure: ItemFailure


@dataclass(frozen=True, slots=True)
class ExampleVectors:
    """What examples became.

    Attributes:
        labels: In the order in which they first came.
        targets: What pictures are compared with, by label, shape (m, d): for rule PROTOTYPE the normalised mean of each
            label's unit vectors, for KNN all unit vectors.
        starts: Where each label begins in `targets`, shape (labels,).
        used: How many examples there are.
        failures: Those of the request that were left out.
        unlabelled: How many items of the collection have no label.
    """

    labels: tuple[str, ...]
    targets: NDArray[np.float32]
    starts: NDArray[np.intp]
    used: int
    failures: tuple[UnusableExample, ...] = ()
    unlabelled: int = 0


class ExampleCache:
    """Vectors of examples, kept."""

    def __init__(self, engine: Engine, io: WorkerPool, max_bytes: int) -> None:
        self._engine = engine
        self._io = io
        self._cache: SharedCache[ExampleVectors] = SharedCache(_size, max_bytes)

    async def get(self, source: ExampleSource, rule: ExampleRule, call: Call) -> ExampleVectors:
        """Vectors of examples, from the cache or made now.

        Args:
            source: The examples.
            rule: What they are for.
            call: The call this is for.

        Raises:
            ServiceError: INVALID_ARGUMENT for a label without an example that can be used, or too many of them;
                FAILED_PRECONDITION for a collection or vectors of another space.
        """
        space_id = self._engine.manifest.space_id
        if source.space_id not in {"", space_id}:
            raise ServiceError(
                Code.FAILED_PRECONDITION,
                f"the examples' vectors belong to space {source.space_id[:12]}, but the model's is {space_id[:12]}; "
                "embed the examples again",
            )
        shared = replace(call, deadline_s=None)
        return await self._cache.get(self._key(source, rule), lambda: self._learn(source, rule, shared))

    def has(self, source: ExampleSource, rule: ExampleRule) -> bool:
        """Whether nothing has to be read or embedded for `get`."""
        return self._key(source, rule) in self._cache

    async def close(self) -> None:
        """Stops what still runs."""
        await self._cache.close()

    def _key(self, source: ExampleSource, rule: ExampleRule) -> str:
        # The version is read before the examples: what is made then is at least as new.
        version = source.collection.version if source.collection is not None else ""
        key = [self._engine.manifest.space_id, source.digest, version, source.label_key, rule]
        return hashlib.sha256(json.dumps(key).encode()).hexdigest()

    async def _learn(self, source: ExampleSource, rule: ExampleRule, call: Call) -> ExampleVectors:
        examples = await self._io.submit(call.priority, self._read, source)
        pictures = [example.content for example in examples if isinstance(example.content, Picture)]
        embedded = await self._engine.embed(pictures, call)
        return await self._io.submit(call.priority, self._gather, source, rule, examples, embedded)

    def _read(self, source: ExampleSource) -> Sequence[Example]:
        """The examples, if they can be meant: before any is embedded, which may take minutes."""
        if source.collection is not None and source.collection.space_id != self._engine.manifest.space_id:
            raise ServiceError(
                Code.FAILED_PRECONDITION,
                f"collection {source.collection.id} belongs to another space than the model; `twinlens reindex` moves "
                "it over",
            )
        examples = source.read()
        for position, example in enumerate(examples):
            if not example.label.strip():
                raise invalid_argument(f"example {position} has an empty label")
            check_length(example.label, "label")
        return examples

    def _gather(
        self, source: ExampleSource, rule: ExampleRule, examples: Sequence[Example], embedded: Sequence[Outcome]
    ) -> ExampleVectors:
        pile = (NeighbourPile if rule is ExampleRule.KNN else PrototypePile)(self._engine.dimension)
        failures: list[UnusableExample] = []
        labels: list[str] = []
        vectors: list[NDArray[np.float32]] = []
        pictures = iter(embedded)
        for position, example in enumerate(examples):
            is_picture = isinstance(example.content, Picture)
            outcome = next(pictures) if is_picture else self._look_up(source.collection, example.content)
            if outcome.vector is not None:
                labels.append(example.label)
                vectors.append(outcome.vector)
            elif outcome.failure is not None:
                if outcome.failure.reason is Reason.INTERNAL:  # the server's fault, not the example's: nothing is kept
                    raise ServiceError(Code.INTERNAL, outcome.failure.message)
                failures.append(UnusableExample(position, example.label, outcome.failure))
        if labels:
            pile.add(labels, np.stack(vectors))
        unlabelled = _add_items(pile, source.collection, source.label_key) if source.collection is not None else 0
        for unusable in failures:
            if unusable.label not in pile.labels:
                raise invalid_argument(
                    f"label {quoted(unusable.label)} has no example that can be used: {unusable.failure.message}"
                )
        if not pile.labels:
            raise invalid_argument(
                "there is no example: no item of the collection has a picture with a label under "
                f"{quoted(source.label_key)} of its metadata"
            )
        targets, starts = pile.targets()
        return ExampleVectors(tuple(pile.labels), targets, starts, pile.count, tuple(failures), unlabelled)

    def _look_up(self, collection: CollectionLike | None, content: Picture | RawVector | StoredItem | None) -> Outcome:
        if isinstance(content, RawVector):
            return unit_vector(content.values, self._engine.dimension)
        if not isinstance(content, StoredItem):
            return refused(Reason.INVALID_INPUT, "the example is empty: set image, item_id or vector")
        if collection is None:
            return refused(Reason.INVALID_INPUT, "the example is an item, but no collection is named")
        return item_vector(collection, content, self._engine.dimension)


def _add_items(pile: ExamplePile, collection: CollectionLike, label_key: str) -> int:
    """Adds the labelled items of a collection; returns how many have no label."""
    unlabelled = 0
    if not label_key:
        return unlabelled
    for values, vectors in collection.iter_metadata(label_key, Modality.IMAGE):
        labels = [label_of(value) for value in values]
        for label in labels:
            if label is not None:
                check_length(label, "the metadata's label")
        rows = [row for row, label in enumerate(labels) if label is not None]
        pile.add([label for label in labels if label is not None], vectors[rows])
        unlabelled += len(labels) - len(rows)
    return unlabelled


def label_of(value: Any) -> str | None:
    """A label as metadata may have it: text that is not empty, or a whole number; None for anything else."""
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return None


def _size(examples: ExampleVectors) -> int:
    # Many labels of few examples may take more than their vectors.
    texts = [*examples.labels, *(text for each in examples.failures for text in (each.label, each.failure.message))]
    return examples.targets.nbytes + examples.starts.nbytes + sum(map(sys.getsizeof, texts))
