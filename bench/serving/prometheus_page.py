"""What a server counted, read from its page of metrics."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping

Counts = Mapping[str, float]


def read_counts(url: str) -> dict[str, float]:
    """Samples by name and labels as they are written there; empty where there is no such page."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - an address of this machine
            text = answer.read().decode("utf-8")
    except (OSError, urllib.error.URLError):
        return {}
    return parse(text)


def parse(text: str) -> dict[str, float]:
    """The samples of a page in Prometheus's text format; without exemplars and times."""
    found = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, value = line.rpartition(" ")
        found[name] = float(value)
    return found


def of_towers(before: Counts, after: Counts, tower: str) -> dict[str, float]:
    """What the pipeline did between two readings; empty where the server counts no such thing.

    Returns:
        `items` that were encoded, `batch` (their mean number in one run), and seconds an item: `prepare_s`, `queue_s`,
        `encode_s`.
    """

    def grown(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    kind = f'{{kind="{tower}"}}'
    of_tower = f'{{tower="{tower}"}}'
    batches, items = (grown(f"twinlens_batch_items_{what}{of_tower}") for what in ("count", "sum"))
    if not batches:
        return {}
    return {
        "items": items,
        "batch": items / batches,
        "prepare_s": grown(f"twinlens_prepare_seconds_sum{kind}") / items,
        "queue_s": grown(f"twinlens_queue_seconds_sum{of_tower}") / items,
        "encode_s": grown(f"twinlens_encode_seconds_sum{of_tower}") / items,
    }
