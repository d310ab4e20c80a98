"""Tells the traces of calls what became of their items in a batch: how long they waited, and how long it ran."""

from __future__ import annotations

from collections.abc import Iterable

from twinlens.server.core.call import Call, CallTrace


def trace_batch(
    waiting: Iterable[tuple[Call, float]], *, tower: str, items: int, began_s: float, ended_s: float
) -> None:
    """Adds a wait and a run to each call that is traced, once, however many items of it the batch held.

    Args:
        waiting: For each item the call it was for, and when it began to wait; clocks as `CallTrace.add` takes them.
        tower: Which tower ran.
        items: How many the batch held.
        began_s: When it began to run.
        ended_s: When it had run.
    """
    first: dict[int, tuple[CallTrace, float]] = {}
    for call, queued_s in waiting:
        if (trace := call.trace) is None:
            continue
        known = first.get(id(trace))
        if known is None or queued_s < known[1]:
            first[id(trace)] = (trace, queued_s)
    for trace, queued_s in first.values():
        trace.add("queue", queued_s, began_s, tower=tower)
        trace.add("encode", began_s, ended_s, tower=tower, batch_items=items)
