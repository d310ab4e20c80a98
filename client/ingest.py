"""Brings a source into a collection, and passes over what is there unchanged."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from twinlens.client.client import Client
from twinlens.client.errors import TwinlensError
from twinlens.client.images import read_image
from twinlens.client.metadata import from_struct, to_struct
from twinlens.client.pipeline import in_order
from twinlens.client.progress import Progress
from twinlens.client.sources import Row
from twinlens.client.split import split
from twinlens.client.types import Item, ItemError, NewItem

_BATCH = 128
_BATCH_BYTES = 32 * 1024 * 1024
_READERS = 2  # batches read ahead while the server works on the one before
_LOOKUPS = 8
_KEPT_FAILURES = 1000  # all are printed; a report that keeps more would grow without bound


@dataclass(slots=True)
class IngestReport:
    """What became of a source; `stored`, `unchanged` and `failed` add up to its items."""

    stored: int = 0
    unchanged: int = 0
    failed: int = 0
    truncated: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Read:
    """A row whose picture was read: what to store, and the hash it will have; or why it cannot be."""

    name: str
    item: NewItem | None
    content_hash: str
    error: str = ""


def ingest(client: Client, collection: str, rows: Iterable[Row], *, compare: bool, shown: Progress) -> IngestReport:
    """Stores rows in order, a batch at a time; what a batch reports as stored is durable before the next is sent.

    Args:
        client: Where to store.
        collection: The collection's id; it exists.
        rows: Read lazily, so a source of any size will do.
        compare: Look first what is stored, and leave out what would not change.
        shown: Told of progress and of each failure.
    """
    report = IngestReport()
    batches = split(rows, _size, max_count=_BATCH, max_bytes=_BATCH_BYTES)
    with ThreadPoolExecutor(max_workers=_LOOKUPS, thread_name_prefix="twinlens-lookup") as pool:
        for batch in in_order(_read_all, batches, workers=_READERS):
            good = [read for read in batch if read.item is not None]
            for read in batch:
                if read.item is None:
                    _fail(report, shown, read.name, "INVALID_INPUT", read.error)
            if compare:
                new = _changed(client, collection, good, pool)
                report.unchanged += len(good) - len(new)
                good = new
            _store(client, collection, good, report, shown)
            shown.advance(len(batch))
    return report


def _store(client: Client, collection: str, reads: list[_Read], report: IngestReport, shown: Progress) -> None:
    result = client.upsert(collection, (read.item for read in reads if read.item is not None))
    report.stored += result.stored
    report.truncated += result.truncated
    for failure in result.failures:
        _fail(report, shown, reads[failure.position].name, failure.reason, failure.message)


def _fail(report: IngestReport, shown: Progress, name: str, reason: str, message: str) -> None:
    report.failed += 1
    shown.say(f"not stored: {name}: {message}")
    if len(report.failures) < _KEPT_FAILURES:
        report.failures.append({"id": name, "reason": reason, "message": message})


def _size(row: Row) -> int:
    try:
        return row.image.stat().st_size if row.image is not None else len(row.caption)
    except (OSError, ValueError):
        return 0


def _read_all(rows: list[Row]) -> list[_Read]:
    return [_read(row) for row in rows]


def _read(row: Row) -> _Read:
    name = row.id or f"caption {row.caption[:40]!r}"
    if row.error:
        return _Read(name, None, "", row.error)
    image: bytes | None = None
    if row.image is not None:
        data = read_image(row.image)
        if isinstance(data, ItemError):
            return _Read(name, None, "", data.message)
        image = data
    try:
        digest = hashlib.sha256(image if image is not None else row.caption.encode()).hexdigest()
    except UnicodeEncodeError:
        return _Read(name, None, "", "the caption holds half of a surrogate pair, which is not text")
    item = NewItem(image=image, caption=row.caption, id=row.id, uri=row.uri, metadata=row.metadata)
    return _Read(name, item, digest)


def _changed(client: Client, collection: str, reads: list[_Read], pool: ThreadPoolExecutor) -> list[_Read]:
    """Those that are not stored as they are."""
    # Of two rows of one id the later one stays; to leave out only one of them could turn that round.
    times = Counter(_id(read) for read in reads)

    def differs(read: _Read) -> bool:
        if times[_id(read)] > 1 or read.item is None:
            return True
        try:
            return not _same(read, client.get_item(collection, _id(read)))
        except TwinlensError as error:
            if error.code in {
                "NOT_FOUND",
                "INVALID_ARGUMENT",
            }:  # the latter: an id that upsert will refuse, with a reason
                return True
            raise

    return [read for read, keep in zip(reads, pool.map(differs, reads), strict=True) if keep]


def _id(read: _Read) -> str:
    return (read.item.id if read.item is not None else "") or read.content_hash


def _same(read: _Read, stored: Item) -> bool:
    if read.item is None or stored.content_hash != read.content_hash:
        return False
    if (stored.caption, stored.uri) != (read.item.caption, read.item.uri):
        return False
    return dict(stored.metadata) == from_struct(to_struct(read.item.metadata))
