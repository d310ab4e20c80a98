"""What collections say of themselves, read whenever metrics are asked for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from twinlens.index.catalog import DamagedCollection
from twinlens.index.contract import CatalogLike
from twinlens.index.errors import CollectionError, CollectionNotFound
from twinlens.index.stats import IndexState, Stats

log = logging.getLogger(__name__)

# Every collection has two dozen series, so only those of this many, the first by id, are told one by one.
MOST_COLLECTIONS = 200
_PAGE = 100
# A disk or a Milvus that does not answer must not make all metrics late; then what was read last is told again.
_WAIT_S = 2.0

_ONE, _OF_MODALITY = ("collection",), ("collection", "modality")
_GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "twinlens_collections": ("Collections there are; the first 200 by id are told one by one.", ("state",)),
    "twinlens_collection_items": ("Items stored.", _ONE),
    "twinlens_collection_generation": ("Number of the generation that is searched.", _ONE),
    "twinlens_collection_generations": ("Generations kept, with the one that is searched.", _ONE),
    "twinlens_collection_bytes": (
        "What it takes on disk (database, indexes, pictures), and its indexes in memory.",
        ("collection", "part"),
    ),
    "twinlens_index_vectors": ("Active vectors.", _OF_MODALITY),
    "twinlens_index_merged_vectors": ("Vectors in merged files, with those replaced or deleted since.", _OF_MODALITY),
    "twinlens_index_pending_vectors": ("Vectors written since the last merge, compared one by one.", _OF_MODALITY),
    "twinlens_index_hidden_vectors": ("Merged vectors that were replaced or deleted since.", _OF_MODALITY),
    "twinlens_index_merging": ("1 while a merge runs.", _OF_MODALITY),
    "twinlens_index_merge_failed": ("1 where the latest merge failed; the collection says why.", _OF_MODALITY),
    "twinlens_index_last_merge_seconds": ("How long the last merge that ended well took.", _OF_MODALITY),
    "twinlens_index_recall": ("recall@10 of sampled searches; none before the first comparison.", _OF_MODALITY),
    "twinlens_index_recall_queries": ("Searches that were compared for it.", _OF_MODALITY),
}
_Row = tuple[str, tuple[str, ...], float]


class CollectionGauges(Collector):
    """Items, vectors, generations, sizes and recall of the collections of a catalog.

    They are read in a thread that nothing else waits for, one at a time.
    """

    def __init__(self, catalog: CatalogLike, *, wait_s: float = _WAIT_S) -> None:
        self._catalog = catalog
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self._read = _families(())
        self._read_s = time.monotonic()

    def collect(self) -> Iterable[Metric]:
        """All gauges, and how old they are."""
        with self._lock:
            if self._reader is None or not self._reader.is_alive():
                self._reader = threading.Thread(target=self._refresh, name="twinlens-collection-gauges", daemon=True)
                self._reader.start()
            reader = self._reader
        reader.join(self._wait_s)
        age = GaugeMetricFamily(
            "twinlens_collections_age_seconds",
            "Since what is told of collections was read: large where they do not answer.",
            time.monotonic() - self._read_s,
        )
        return [*self._read, age]

    def _refresh(self) -> None:
        try:
            read = _families(_rows_of_all(self._catalog))
        except CollectionError as error:  # the catalog has closed, or its Milvus does not answer
            log.debug("what collections say of themselves cannot be read: %s", error)
        except Exception:
            log.exception("what collections say of themselves cannot be read")
        else:
            self._read, self._read_s = read, time.monotonic()


def _families(rows: Iterable[_Row]) -> Sequence[Metric]:
    families = {name: GaugeMetricFamily(name, told, labels=labels) for name, (told, labels) in _GAUGES.items()}
    for name, labels, value in rows:
        families[name].add_metric(labels, value)
    return list(families.values())


def _rows_of_all(catalog: CatalogLike) -> Iterator[_Row]:
    sound = damaged = 0
    after = ""
    while page := catalog.entries(after=after, limit=_PAGE):
        after = page[-1].id
        for entry in page:
            if isinstance(entry, DamagedCollection):
                damaged += 1
                continue
            try:
                if sound < MOST_COLLECTIONS:
                    yield from _rows(entry.stats())
                sound += 1
            except CollectionNotFound:  # deleted meanwhile
                continue
            except CollectionError as error:
                log.debug("collection %s cannot be read: %s", entry.id, error)
                damaged += 1
    yield "twinlens_collections", ("sound",), sound
    yield "twinlens_collections", ("damaged",), damaged


def _rows(stats: Stats) -> Iterator[_Row]:
    one = (stats.id,)
    yield "twinlens_collection_items", one, stats.items
    yield "twinlens_collection_generations", one, max(1, len(stats.generations))
    for generation in stats.generations:
        if generation.active:
            yield "twinlens_collection_generation", one, generation.number
    sizes = stats.sizes
    yield "twinlens_collection_bytes", (stats.id, "database"), sizes.database
    yield "twinlens_collection_bytes", (stats.id, "indexes"), sizes.indexes
    yield "twinlens_collection_bytes", (stats.id, "pictures"), sizes.pictures
    yield "twinlens_collection_bytes", (stats.id, "memory"), sizes.memory
    yield "twinlens_index_vectors", (stats.id, "image"), stats.image_vectors
    yield "twinlens_index_vectors", (stats.id, "text"), stats.text_vectors
    for index in stats.indexes:
        yield from _rows_of_index(index, (stats.id, str(index.modality)))


def _rows_of_index(index: IndexState, labels: tuple[str, str]) -> Iterator[_Row]:
    yield "twinlens_index_merged_vectors", labels, index.merged
    yield "twinlens_index_pending_vectors", labels, index.pending
    yield "twinlens_index_hidden_vectors", labels, index.hidden
    yield "twinlens_index_merging", labels, index.merging
    yield "twinlens_index_merge_failed", labels, bool(index.last_merge.error)
    if index.last_merge.ended_s is not None:
        yield "twinlens_index_last_merge_seconds", labels, index.last_merge.took_s
    if index.recall is not None:
        yield "twinlens_index_recall", labels, index.recall.value
        yield "twinlens_index_recall_queries", labels, index.recall.queries
