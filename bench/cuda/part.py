"""A part of the script for GPUs: a process that measures one thing, or says why it does not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

Order = dict[str, Any]


class Skipped(Exception):  # noqa: N818 - nothing went wrong
    """Something is not there. The message is one line that says what."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Attributes:
        what: Was measured.
        unit: Of the rates: `queries`, `pictures` …
        per_s: Ours.
        bare_per_s: Of a loop with nothing around it; None where there is none.
        check: What was compared with a reference, and how it came out; empty where nothing was.
        held: Whether the check holds.
    """

    what: str
    unit: str
    per_s: float
    bare_per_s: float | None = None
    check: str = ""
    held: bool = True


def run_part(measure: Callable[[Order], Iterable[Row]]) -> None:
    """Measures as the first argument orders, and prints rows, or why there are none, as one line of JSON.

    What was measured before something turned out to be missing is kept.
    """
    rows: list[Row] = []
    skipped = ""
    try:
        for row in measure(json.loads(sys.argv[1])):
            rows.append(row)
            print(f"{row.what}: {row.per_s:,.1f} {row.unit}/s", file=sys.stderr, flush=True)
    except Skipped as reason:
        skipped = str(reason)
    except ModuleNotFoundError as error:
        skipped = f"{error.name} is not installed"
    print(json.dumps({"rows": [asdict(row) for row in rows], "skipped": skipped}))
