"""Queries: weighted mixes of pictures, texts, vectors and stored items, answered by one collection."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from twinlens.index.contract import CollectionLike
from twinlens.index.filters.parse import check_filter
from twinlens.index.item import Hit, Modality
from twinlens.server.core.admission import Admission, Place
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Input, Outcome, Picture, PictureAt, Text, any_fetched, size_of
from twinlens.server.core.errors import Code, ItemFailure, Reason, ServiceError
from twinlens.server.core.joined_search import JoinedSearch, SearchOptions
from twinlens.server.core.lookup import RawVector, StoredItem, item_vector, refused, unit_vector
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.core.towers import no_tower, refuse_if_unsupported

MAX_PARTS = 16
# Below this share of the summed weights what is left of a mix is rounding, not meaning.
_CANCELLED = 1e-5
# JSON, as which metadata is stored, takes at most so many characters for a byte on the wire: \u0001.
_CHARACTERS_A_BYTE = 6


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a query; `content` None: the caller set nothing."""

    content: Picture | PictureAt | Text | RawVector | StoredItem | None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one query."""

    hits: Sequence[Hit] = ()
    failure: ItemFailure | None = None
    truncated: bool = False


class Searcher:
    """Embeds queries and asks collections."""

    def __init__(
        self, engine: Engine, admission: Admission, io: WorkerPool, telemetry: Telemetry, *, max_reply_bytes: int
    ) -> None:
        self._engine = engine
        self._admission = admission
        self._io = io
        self._joined = JoinedSearch(
            io,
            telemetry,
            space_id=engine.manifest.space_id,
            max_characters=_CHARACTERS_A_BYTE * max_reply_bytes,
        )

    async def search(
        self, collection: CollectionLike, queries: Sequence[Sequence[Part]], options: SearchOptions, call: Call
    ) -> list[Answer]:
        """Answers queries, each on its own: a bad one fails alone.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED when the server is full, FAILED_PRECONDITION where the model lacks the
                tower of the vectors to search, or of every query.
            InvalidArgument: the items found are more than any reply could hold, or the filter cannot be read.
        """
        self._check_modality(options.modality)
        if options.filter:  # before anything is embedded for it; not on the event loop, for it may be long
            await self._io.submit(call.priority, check_filter, options.filter)
        items = sum(max(1, len(query)) for query in queries)
        contents = [part.content for query in queries for part in query if isinstance(part.content, Input)]
        size_bytes, fetches = sum(map(size_of, contents)), any_fetched(contents)
        pictures = any(not isinstance(content, Text) for content in contents)
        with self._admission.admit(
            items,
            size_bytes,
            pictures=pictures,
            fetches=fetches,
            embeds=bool(contents),
            collection=collection.id,
            call=call,
        ) as place:
            outcomes = await self._mix_all(collection, queries, call, place)
            refuse_if_unsupported([outcome.failure for outcome in outcomes])
            good = [i for i, outcome in enumerate(outcomes) if outcome.vector is not None]
            answers = [Answer(failure=outcome.failure, truncated=outcome.truncated) for outcome in outcomes]
            if not good:
                return answers
            vectors = np.stack([outcomes[i].vector for i in good])  # type: ignore[misc]  # None was left out above
            hits = await self._joined.search(collection, vectors, options, call)
            for i, found in zip(good, hits, strict=True):
                answers[i] = Answer(hits=found, truncated=outcomes[i].truncated)
            return answers

    def _check_modality(self, modality: Modality) -> None:
        if (why := self._why_no_vectors(modality, "search")) is not None:
            raise ServiceError(Code.FAILED_PRECONDITION, why)

    def _why_no_vectors(self, modality: Modality, do: str) -> str | None:
        """Why no item has a vector of a modality, and what to `do` with the other; None where items may have one."""
        engine = self._engine
        if modality is Modality.TEXT and not engine.has_text_tower:
            so, instead = "no item has a caption's vector", f"{do} the pictures (modality image)"
        elif modality is Modality.IMAGE and not engine.has_image_tower:
            so, instead = "no item has a picture's vector", f"{do} the captions (modality text)"
        else:
            return None
        return no_tower(engine.manifest, modality, so, instead)

    async def _mix_all(
        self, collection: CollectionLike, queries: Sequence[Sequence[Part]], call: Call, place: Place
    ) -> list[Outcome]:
        """Embeds the parts of all queries together, so that they share batches."""
        to_embed: list[Input] = []
        slots: list[list[int | None]] = []
        for query in queries:
            row: list[int | None] = []
            for part in query[:MAX_PARTS]:
                if isinstance(part.content, Input):
                    row.append(len(to_embed))
                    to_embed.append(part.content)
                else:
                    row.append(None)
            slots.append(row)
        embedded = await self._engine.embed(to_embed, call)
        place.embedded()

        async def mixed(query: Sequence[Part], row: list[int | None]) -> Outcome:
            if not 1 <= len(query) <= MAX_PARTS:
                return refused(Reason.INVALID_INPUT, f"a query has 1 to {MAX_PARTS} parts, not {len(query)}")
            outcomes = [
                embedded[slot] if slot is not None else await self._lookup(collection, part, call)
                for part, slot in zip(query, row, strict=True)
            ]
            return mix(outcomes, [part.weight for part in query])

        return list(await asyncio.gather(*(mixed(q, row) for q, row in zip(queries, slots, strict=True))))

    async def _lookup(self, collection: CollectionLike, part: Part, call: Call) -> Outcome:
        content, dimension = part.content, self._engine.dimension
        if isinstance(content, RawVector):
            return unit_vector(content.values, dimension)
        if isinstance(content, StoredItem):
            if content.modality and (why := self._why_no_vectors(content.modality, "start from")) is not None:
                return refused(Reason.UNSUPPORTED, why)
            return await self._io.submit(call.priority, item_vector, collection, content, dimension)
        return refused(Reason.INVALID_INPUT, "the part is empty: set image, image_url, text, vector or item_id")


def mix(outcomes: Sequence[Outcome], weights: Sequence[float]) -> Outcome:
    """Adds unit part vectors times their weights and normalises; the first failed part fails the mix."""
    for position, (outcome, weight) in enumerate(zip(outcomes, weights, strict=True), 1):
        if (failure := outcome.failure) is not None:
            which = f"part {position} of the query (weight {weight:g}): " if len(outcomes) > 1 else ""
            return Outcome(failure=replace(failure, message=f"{which}{failure.message}"))
    if not all(math.isfinite(weight) for weight in weights):
        return refused(Reason.INVALID_INPUT, "a part's weight is not a finite number")
    truncated = any(outcome.truncated for outcome in outcomes)
    # float64, and weights scaled to at most 1, so that no sum overflows or drowns.
    largest = max(abs(weight) for weight in weights)
    if largest == 0:
        return refused(Reason.INVALID_VECTOR, "all parts of the query have weight 0")
    shares = [weight / largest for weight in weights]
    total = np.sum(
        [np.asarray(o.vector, dtype=np.float64) * share for o, share in zip(outcomes, shares, strict=True)], axis=0
    )
    norm = float(np.linalg.norm(total))
    if norm <= _CANCELLED * sum(abs(share) for share in shares):
        return refused(Reason.INVALID_VECTOR, "the parts of the query cancel each other out; nothing is left to find")
    return Outcome(vector=(total / norm).astype(np.float32), truncated=truncated)
