"""What a fault did, and the table of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a server and its callers under one fault.

    Attributes:
        fault: What was done.
        told: What callers were told meanwhile: "OK", or the status.
        back_ms: From the end of the fault to the next right answer; None where the server answered all the while.
        found: What was checked afterwards, and held.
    """

    fault: str
    told: Counter[str] = field(default_factory=Counter)
    back_ms: float | None = None
    found: str = ""


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown, a row a fault."""
    rows = [("fault", "calls answered", "told otherwise", "back after", "found afterwards")]
    for outcome in outcomes:
        otherwise = ", ".join(f"{count:,} {what}" for what, count in outcome.told.most_common() if what != "OK")
        back = "–" if outcome.back_ms is None else f"{outcome.back_ms:,.0f} ms"
        rows.append((outcome.fault, f"{outcome.told['OK']:,}", otherwise or "–", back, outcome.found))
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "| --- | --: | --- | --: | --- |", *rest])
