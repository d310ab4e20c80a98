"""Admission: how much work may be inside the server at once, in items, in bytes and in what it makes others wait."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from weakref import WeakValueDictionary

from twinlens.server.core.backlog import Backlog, retry_after_s
from twinlens.server.core.call import Call
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.outflow import Outflow
from twinlens.server.core.telemetry import Telemetry

# For small calls, of which some leave all the time.
_RETRY_AFTER_S = 0.25
# Large ones leave seldom.
_MEMORY_S = 30.0
# Calls of one item that make so many full batches are let in whatever they wait: one runs, one is ready, the others are
# being prepared, read or answered.
_BATCHES_INSIDE = 5
_MIN_FLOOR = 64


class Place:
    """What a call that was let in holds; others wait for it in one stage at a time.

    Args:
        items: How many it brings.
        stages: What it goes through, of those where waiting is bounded.
    """

    def __init__(self, items: int, stages: Sequence[Backlog]) -> None:
        self._items = items
        self._stages = deque(stages)
        self._enter()

    def embedded(self) -> None:
        """The towers are done with it: how long the search takes is nothing to those who wait for them."""
        if len(self._stages) > 1:
            self.leave(served=True)
            self._enter()

    def leave(self, *, served: bool) -> None:
        """Leaves the stage it is in; `served`: with what it came for."""
        if self._stages:
            self._stages.popleft().leave(self._items, time.monotonic(), served=served)

    def _enter(self) -> None:
        if self._stages:
            self._stages[0].enter(self._items, time.monotonic())


class Admission:
    """Refuses at once what does not fit. A request that is alone is always admitted.

    Calls of at most one batch are held to a wait: for the towers, pictures and texts apart, for they take very
    different times and do not wait for each other; and for the collection they search, each apart, for one of them may
    hang and the others answer. Larger ones, which they overtake, wait as long as it takes, but leave room for them.
    Streams are not counted here: their items wait for their turn in windows of their own.

    Args:
        max_items: Most items inside.
        max_bytes: Most bytes of them as they were sent.
        max_batch: Most items in one run of a tower.
        max_wait_s: See `Backlog`.
        telemetry: Counts what is refused.
    """

    def __init__(
        self,
        max_items: int,
        max_bytes: int,
        *,
        max_batch: int = 16,
        max_wait_s: float = 0.25,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_batch = max_batch
        floor = max(_MIN_FLOOR, _BATCHES_INSIDE * max_batch)
        self._max_large = max_items - min(floor, max_items // 2)
        self._pictures = Backlog(floor, max_wait_s)
        self._texts = Backlog(floor, max_wait_s)
        self._make_backlog = partial(Backlog, floor, max_wait_s)
        # As long as calls are there.
        self._searches: WeakValueDictionary[str, Backlog] = WeakValueDictionary()
        self._items = 0
        self._large = 0
        self._large_out = Outflow(_MEMORY_S)
        self._bytes = 0
        self._refused = (telemetry or Telemetry()).refused
        if telemetry is not None:
            telemetry.items_in_flight.set_function(lambda: float(self._items))
            telemetry.bytes_in_flight.set_function(lambda: float(self._bytes))

    @property
    def items(self) -> int:
        """Items inside now."""
        return self._items

    @contextmanager
    def admit(
        self,
        items: int,
        size_bytes: int,
        *,
        pictures: bool = False,
        fetches: bool = False,
        embeds: bool = True,
        collection: str = "",
        held: int = 0,
        call: Call | None = None,
    ) -> Iterator[Place]:
        """Holds room for a request while it is worked on.

        Args:
            items: How many it brings.
            size_bytes: What they take.
            pictures: Whether any of them is a picture to embed.
            fetches: Whether something is to be had first: a picture from elsewhere, the vectors of many labels. How
                long that takes says nothing of the work on these items, so such calls wait as large ones do.
            embeds: Whether there is anything to embed.
            collection: What is searched then, by its id; empty: nothing.
            held: How many of the items inside wait for just this; where there are no others, it is alone.
            call: Who asks, for the deadline.

        Yields:
            Its place, to be told when everything is embedded and the search begins.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED when the server is full, or could not answer in time.
        """
        large = fetches or items > self._max_batch
        stages = [] if large else self._stages(pictures, embeds, collection)
        if self._items > held:
            self._check(items, size_bytes, stages, call, large=large)
        if large:
            self._large_out.advance(time.monotonic(), busy=self._large > 0)
            self._large += items
        self._items += items
        self._bytes += size_bytes
        place, served = Place(items, stages), False
        try:
            yield place
            served = True
        finally:
            self._items -= items
            self._bytes -= size_bytes
            place.leave(served=served)
            if large:
                self._large_out.advance(time.monotonic(), busy=True)
                self._large_out.came_out(items)
                self._large -= items

    def _stages(self, pictures: bool, embeds: bool, collection: str) -> list[Backlog]:
        stages = [self._pictures if pictures else self._texts] if embeds else []
        if collection:
            search = self._searches.get(collection)
            if search is None:
                search = self._searches[collection] = self._make_backlog()
            stages.append(search)
        return stages

    def _check(self, items: int, size_bytes: int, stages: Sequence[Backlog], call: Call | None, *, large: bool) -> None:
        over = self._items + items - self._max_items
        over_bytes = self._bytes + size_bytes - self._max_bytes
        if large:
            if self._large:
                over = max(over, self._large + items - self._max_large)
            if over > 0:
                raise self._refusal("items", self._until_out(over))
            if over_bytes > 0:  # as many items as hold so much
                raise self._refusal("bytes", self._until_out(self._large * over_bytes / max(1, self._bytes)))
            return
        if over > 0:
            raise self._refusal("items", _RETRY_AFTER_S)
        if over_bytes > 0:
            raise self._refusal("bytes", _RETRY_AFTER_S)
        now_s = time.monotonic()
        left_s = None if call is None or call.deadline_s is None else call.deadline_s - now_s
        hints_s = [hint_s for stage in stages if (hint_s := stage.refusal(items, now_s, left_s)) is not None]
        if hints_s:
            raise self._refusal("wait", max(hints_s))

    def _until_out(self, items: float) -> float:
        """How long until so many items of large calls will have come out."""
        self._large_out.advance(time.monotonic(), busy=self._large > 0)
        return retry_after_s(self._large_out.wait_s(min(items, self._large)))

    def _refusal(self, why: str, retry_after_s: float) -> ServiceError:
        self._refused.labels(why).inc()
        return ServiceError(
            Code.RESOURCE_EXHAUSTED,
            f"the server is full ({self._items} items are being worked on); try again in a moment",
            retry_after_s=retry_after_s,
        )
