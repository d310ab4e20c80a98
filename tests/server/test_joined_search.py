from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.server.watched import until
from twinlens.index.contract import CollectionLike
from twinlens.index.errors import InvalidArgument
from twinlens.index.item import Hit, Item, Modality
from twinlens.server.core.call import Call
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.joined_search import MAX_QUERIES, JoinedSearch, SearchOptions
from twinlens.server.core.lanes import Priority
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.telemetry import Telemetry

OPTIONS = SearchOptions(Modality.IMAGE, top_k=1)


class Held:
    """A collection whose searches wait until they are let go, and that answers each query with its first number."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began = threading.Event()
        self.three_inside = threading.Event()
        self.batches: list[list[float]] = []
        self.options: list[dict[str, Any]] = []
        self.refuse: Callable[[list[float]], Exception | None] = lambda _: None

    def search(self, queries: NDArray[np.float32], **options: Any) -> list[list[Hit]]:
        numbers = [float(query[0]) for query in queries]
        self.batches.append(numbers)
        self.options.append(options)
        self.began.set()
        if len(self.batches) == 3:
            self.three_inside.set()
        assert self.go.wait(20)
        if (error := self.refuse(numbers)) is not None:
            raise error
        return [[Hit(_item(str(number)), number)] for number in numbers]


@pytest.fixture
async def joined() -> AsyncIterator[JoinedSearch]:
    io = WorkerPool("io", 4)
    try:
        yield JoinedSearch(io, Telemetry(), space_id="space", max_characters=1000)
    finally:
        await asyncio.to_thread(io.close, 5)


def ask(
    joined: JoinedSearch, held: Held, *numbers: float, options: SearchOptions = OPTIONS, call: Call | None = None
) -> asyncio.Task[list[list[Hit]]]:
    queries = np.array([[number, 0.0] for number in numbers], dtype=np.float32)
    return asyncio.create_task(joined.search(cast("CollectionLike", held), queries, options, call or Call()))


async def first_runs(held: Held) -> None:
    assert await asyncio.to_thread(held.began.wait, 10)


async def test_an_idle_server_searches_at_once_and_what_comes_meanwhile_goes_together(joined: JoinedSearch) -> None:
    held = Held()
    tasks = [ask(joined, held, 1)]
    await first_runs(held)
    tasks += [ask(joined, held, 2), ask(joined, held, 3, 4), ask(joined, held, 5)]
    await asyncio.sleep(0)
    held.go.set()
    found = [[hits[0].score for hits in answer] for answer in await asyncio.gather(*tasks)]
    assert found == [[1], [2], [3, 4], [5]]
    assert held.batches == [[1], [2, 3, 4, 5]]


async def test_what_asks_for_something_else_is_not_joined_and_does_not_wait(joined: JoinedSearch) -> None:
    held = Held()
    others = [SearchOptions(Modality.IMAGE, 2), SearchOptions(Modality.IMAGE, 1, filter="a = 1")]
    tasks = [ask(joined, held, 1), *(ask(joined, held, 2, options=options) for options in others)]
    await asyncio.to_thread(held.three_inside.wait, 10)  # all three are inside at once
    held.go.set()
    await asyncio.gather(*tasks)
    assert sorted(held.batches) == [[1], [2], [2]]
    assert {(options["top_k"], options["filter"]) for options in held.options} == {(1, ""), (2, ""), (1, "a = 1")}


async def test_a_batch_never_holds_more_than_its_most_unless_one_call_does(joined: JoinedSearch) -> None:
    held = Held()
    tasks = [ask(joined, held, 0)]
    await first_runs(held)
    tasks += [ask(joined, held, *range(MAX_QUERIES + 5))]
    tasks += [ask(joined, held, number) for number in range(MAX_QUERIES + 1)]
    await asyncio.sleep(0)
    held.go.set()
    await asyncio.gather(*tasks)
    assert [len(batch) for batch in held.batches] == [1, MAX_QUERIES + 5, MAX_QUERIES, 1]


async def test_a_call_that_fails_fails_alone(joined: JoinedSearch) -> None:
    held = Held()
    held.refuse = lambda numbers: InvalidArgument("too long") if 3 in numbers else None
    tasks = [ask(joined, held, 1)]
    await first_runs(held)
    tasks += [ask(joined, held, 2), ask(joined, held, 3), ask(joined, held, 4)]
    await asyncio.sleep(0)
    held.go.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers[2], InvalidArgument)
    assert [answer[0][0].score for answer in answers if not isinstance(answer, BaseException)] == [1, 2, 4]


async def test_what_hung_once_is_not_tried_again(joined: JoinedSearch) -> None:
    held = Held()
    held.refuse = lambda numbers: ServiceError(Code.UNAVAILABLE, "replaced") if numbers != [1] else None
    tasks = [ask(joined, held, 1)]
    await first_runs(held)
    tasks += [ask(joined, held, 2), ask(joined, held, 3)]
    await asyncio.sleep(0)
    held.go.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, ServiceError, ServiceError]
    assert held.batches == [[1], [2, 3]]


async def test_who_gave_up_or_is_too_late_is_left_out(joined: JoinedSearch) -> None:
    held = Held()
    running = ask(joined, held, 1)
    await first_runs(held)
    gone, late, here = (
        ask(joined, held, 2),
        ask(joined, held, 3, call=Call(deadline_s=time.monotonic())),
        ask(joined, held, 4),
    )
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    held.go.set()
    await asyncio.gather(running, here)
    with pytest.raises(ServiceError) as raised:
        await late
    assert raised.value.code is Code.DEADLINE_EXCEEDED
    assert held.batches == [[1], [4]]
    value = joined._telemetry.registry.get_sample_value
    assert value("twinlens_dropped_items_total", {"stage": "search", "why": "cancelled"}) == 1
    assert value("twinlens_dropped_items_total", {"stage": "search", "why": "expired"}) == 1
    assert value("twinlens_search_seconds_count") == 2


async def test_a_search_that_everybody_left_is_told_to_end_and_the_next_one_runs(joined: JoinedSearch) -> None:
    held = Held()
    tasks = [ask(joined, held, 1)]
    await first_runs(held)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    later = ask(joined, held, 2)
    held.go.set()
    assert (await later)[0][0].score == 2
    assert not joined._groups


async def test_who_waits_behind_a_search_that_everybody_left_is_answered(joined: JoinedSearch) -> None:
    held = Held()
    gone = ask(joined, held, 1)
    await first_runs(held)
    later = ask(joined, held, 2)
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    held.go.set()
    assert (await later)[0][0].score == 2


async def test_interactive_searches_do_not_wait_for_bulk_ones(joined: JoinedSearch) -> None:
    held = Held()
    bulk = ask(joined, held, 1, call=Call(priority=Priority.BULK))
    await first_runs(held)
    interactive = ask(joined, held, 2)
    await until(lambda: held.batches == [[1], [2]])
    held.go.set()
    await asyncio.gather(bulk, interactive)


def _item(name: str) -> Item:
    return Item(
        id=name, uri="", caption="", metadata={}, content_hash="", has_image=False, created_s=0.0, updated_s=0.0
    )
