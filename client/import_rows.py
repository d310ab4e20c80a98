"""Stores the rows of an import, and says which it did not store, and why."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from twinlens.client.client import Client
from twinlens.client.import_source import ImportRow, ImportSource
from twinlens.client.progress import Progress
from twinlens.client.types import NewItem

_BLOCK = 2048
_KEPT_FAILURES = 1000
_SAID = 20
_FILTER_CHARACTERS = 15_000  # a server takes 16,384, and 1,000 comparisons
_FILTER_IDS = 250
_ESCAPED = re.compile(r'[\\"*]')  # in a filter's quotes
_ID_BYTES = 1024
_HAS_PICTURE = "it has a picture, which would be lost, for an import brings none: --replace does it all the same"


@dataclass(slots=True)
class ImportReport:
    """What became of the rows; `failures` are the first that failed."""

    stored: int = 0
    failed: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)


def import_rows(
    client: Client, collection: str, source: ImportSource, space_id: str, *, replace: bool, shown: Progress
) -> ImportReport:
    """Stores rows in order, a block at a time.

    Args:
        client: Where to store.
        collection: The collection's id; it exists.
        source: The rows.
        space_id: The space of their vectors; empty where they bring none.
        replace: Replace items that have a picture, too, which then is gone. Otherwise such rows fail.
        shown: Told of progress and of failures, of each reason no more than the first few.
    """
    report = ImportReport()
    times: Counter[str] = Counter()

    def fail(which: str, message: str) -> None:
        report.failed += 1
        if len(report.failures) < _KEPT_FAILURES:
            report.failures.append({"id": which, "message": message})
        if message in times or len(times) < _KEPT_FAILURES:
            times[message] += 1
        if times[message] <= _SAID:
            shown.say(f"not stored: {which}: {message}")

    careful = not replace and client.count_items(collection, "has_image = true") > 0
    while block := list(islice(source.rows, _BLOCK)):
        items = [row.item for row in block if row.item is not None]
        kept = with_pictures(client, collection, (item.id for item in items)) if careful else frozenset()
        good: list[tuple[ImportRow, NewItem]] = []
        for row in block:
            if row.item is None:
                fail(row.name, row.error)
            elif row.item.id in kept:
                fail(row.name, _HAS_PICTURE)
            else:
                good.append((row, row.item))
        result = client.upsert(collection, (item for _, item in good), space_id=space_id)
        report.stored += result.stored
        for failure in result.failures:
            fail(good[failure.position][0].name, failure.message)
        shown.advance(len(block))
    for message, count in times.items():
        if count > _SAID:
            shown.say(f"not stored: {count - _SAID:,} more: {message}")
    return report


def with_pictures(client: Client, collection: str, ids: Iterable[str]) -> frozenset[str]:
    """Which of these items are there and have a picture."""
    return frozenset(
        item.id
        for condition in _conditions(ids)
        for item in client.list_items(collection, filter=f"has_image = true AND ({condition})")
    )


def _conditions(ids: Iterable[str]) -> Iterator[str]:
    """Filters for these ids, each short enough for a server."""
    parts: list[str] = []
    characters = 0
    for item_id in filter(_may_be_there, ids):
        text = _ESCAPED.sub(r"\\\g<0>", item_id)
        part = f'id = "{text}"'
        if parts and (len(parts) == _FILTER_IDS or characters + len(part) > _FILTER_CHARACTERS):
            yield " OR ".join(parts)
            parts, characters = [], 0
        parts.append(part)
        characters += len(part) + len(" OR ")
    if parts:
        yield " OR ".join(parts)


def _may_be_there(item_id: str) -> bool:
    """False for ids that no server stores, some of which a filter could not name."""
    return len(item_id) <= _ID_BYTES and all(unicodedata.category(each) not in {"Cc", "Cs"} for each in item_id)
