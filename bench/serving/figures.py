"""From the times of single calls to the figures of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

OK = "ok"
REFUSED = "refused"
_STRETCHES = 20


class Done(NamedTuple):
    """One call, in seconds of one clock.

    Attributes:
        due_s: When it should have been sent; for callers who wait for their answers, when it was.
        sent_s: When it was.
        end_s: When the answer was there.
        outcome: `OK`, `REFUSED` (the server was full), or what else became of it.
    """

    due_s: float
    sent_s: float
    end_s: float
    outcome: str


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99 in milliseconds; empty without any values."""
    if not len(seconds):
        return {}
    p50, p95, p99 = (float(value) for value in np.percentile(np.asarray(seconds) * 1000, [50, 95, 99]))
    return {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99}


def summary(calls: Sequence[Done], start_s: float, end_s: float, *, by_due: bool) -> dict[str, Any]:
    """Rates and waits of one phase.

    Args:
        calls: All there were; those of other phases are left out.
        start_s: When the phase began.
        end_s: When it ended.
        by_due: Times are of the calls that were due in the phase, and count from when they were due, so that a
            generator that falls behind flatters nobody. Otherwise of those answered in it, from when they were sent;
            and rates count a call by the part of its time that lies in the phase, for whole batches are answered at
            once, and where the phase cuts between two of them is chance.
    """
    seconds = end_s - start_s
    answered = [call for call in calls if start_s <= call.end_s < end_s]
    due = [call for call in calls if start_s <= call.due_s < end_s]
    of_phase = due if by_due else answered
    good = [call.end_s - (call.due_s if by_due else call.sent_s) for call in of_phase if call.outcome == OK]
    refused = [call.end_s - call.sent_s for call in of_phase if call.outcome == REFUSED]
    if by_due:
        counted = [(1.0, call.outcome) for call in answered]
    else:
        counted = [(_share_within(call, start_s, end_s), call.outcome) for call in calls]
    found: dict[str, Any] = {
        "seconds": seconds,
        "due_per_s": len(due) / seconds,
        "answered": sum(share for share, _ in counted),
        "ok_per_s": sum(share for share, outcome in counted if outcome == OK) / seconds,
        "outcomes": dict(Counter(call.outcome for call in of_phase)),
        **percentiles_ms(good),
    }
    if refused:
        found["refused_p50_ms"], _, found["refused_p99_ms"] = percentiles_ms(refused).values()
    if by_due and due:
        found["late_p99_ms"] = float(np.percentile([(call.sent_s - call.due_s) * 1000 for call in due], 99))
    return found


def _share_within(call: Done, start_s: float, end_s: float) -> float:
    """Which part of a call's time lies between the two."""
    within_s = min(call.end_s, end_s) - max(call.sent_s, start_s)
    if call.end_s == call.sent_s:
        return 1.0 if start_s <= call.end_s < end_s else 0.0
    return max(0.0, within_s) / (call.end_s - call.sent_s)


def recovery_s(calls: Sequence[Done], over_s: float, slow_s: float) -> float:
    """How long after `over_s` the last call was due that was not answered well, or took longer than `slow_s`."""
    bad = [
        call.due_s
        for call in calls
        if call.due_s >= over_s and (call.outcome != OK or call.end_s - call.due_s > slow_s)
    ]
    return max(bad) - over_s if bad else 0.0


def growth_per_thousand(samples: Sequence[tuple[int, float]]) -> float:
    """How much memory grows over a thousand calls: the slope of a line under the last two thirds.

    It goes through the least of each of up to twenty stretches, for what calls hold while they are worked on comes on
    top, now more, now less.

    Args:
        samples: (calls so far, memory); the first third is warm-up.

    Raises:
        ValueError: there are fewer than three samples, or no calls between them.
    """
    kept = np.asarray(samples[len(samples) // 3 :], dtype=np.float64)
    if len(kept) < 3 or np.ptp(kept[:, 0]) == 0:
        raise ValueError("too few samples for a slope")
    floor = np.array([part[part[:, 1].argmin()] for part in np.array_split(kept, min(_STRETCHES, len(kept)))])
    return float(np.polyfit(floor[:, 0], floor[:, 1], 1)[0]) * 1000
