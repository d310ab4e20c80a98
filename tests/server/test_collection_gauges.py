from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.server.running import Running, run_server
from tests.server.watched import PATIENCE_S
from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import COLOURS
from tests.support.scraped import Scraped
from twinlens.index.errors import CollectionError
from twinlens.index.item import Modality
from twinlens.index.stats import GenerationState, IndexState, LastMerge, Recall, Sizes, Stats
from twinlens.server.core import collection_gauges
from twinlens.server.core.collection_gauges import CollectionGauges
from twinlens.v1 import collection_operations_pb2


def read(gauges: CollectionGauges) -> Scraped:
    registry = CollectorRegistry()
    registry.register(gauges)
    return Scraped.of(registry)


async def test_a_collection_tells_its_items_what_is_pending_and_what_it_takes(served: Running) -> None:
    await served.fill_with_colours()
    gauges = CollectionGauges(served.app.catalog)
    now = read(gauges)
    assert now.sum("twinlens_collections", state="sound") == 1
    assert now.sum("twinlens_collection_items", collection="photos") == len(COLOURS)
    for modality in ("image", "text"):
        labels = {"collection": "photos", "modality": modality}
        assert now.sum("twinlens_index_vectors", **labels) == len(COLOURS)
        assert now.sum("twinlens_index_pending_vectors", **labels) == len(COLOURS)
        assert now.sum("twinlens_index_merged_vectors", **labels) == 0
    assert now.sum("twinlens_collection_generation", collection="photos") == 1
    assert now.sum("twinlens_collection_bytes", part="database") > 0
    assert not list(now.samples("twinlens_index_recall"))
    assert now.sum("twinlens_collections_age_seconds") < PATIENCE_S

    request = collection_operations_pb2.MergeCollectionRequest(collection="photos")
    await served.operations.MergeCollection(request)
    now = read(gauges)
    assert now.sum("twinlens_index_pending_vectors") == 0
    assert now.sum("twinlens_index_merged_vectors") == 2 * len(COLOURS)
    assert now.sum("twinlens_index_merge_failed") == 0


async def test_a_damaged_collection_is_counted_and_the_others_are_told(data: Path) -> None:
    async with run_server(data, FakeEncoder()) as served:
        await served.fill_with_colours()
        await served.create("broken")
    (data / "collections" / "broken" / "collection.db").write_bytes(b"no database" * 1000)
    async with run_server(data, FakeEncoder()) as served:
        now = read(CollectionGauges(served.app.catalog))
    assert {s.labels["state"]: s.value for s in now.samples("twinlens_collections")} == {"sound": 1, "damaged": 1}
    assert now.sum("twinlens_collection_items") == len(COLOURS)


class Told:
    """A collection that says what it is told to say."""

    def __init__(self, stats: Stats) -> None:
        self.id = stats.id
        self._stats = stats

    def stats(self) -> Stats:
        return self._stats


class Listed:
    """A catalog of such collections."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows
        self.open = threading.Event()
        self.open.set()
        self.broken: Exception | None = None

    def entries(self, *, after: str = "", limit: int = 100) -> Sequence[Any]:
        assert self.open.wait(PATIENCE_S)
        if self.broken is not None:
            raise self.broken
        return [row for row in self.rows if row.id > after][:limit]


def of(catalog: Listed, **options: float) -> CollectionGauges:
    return CollectionGauges(catalog, **options)  # type: ignore[arg-type]  # only `entries` is asked


def stats(name: str, items: int = 0, **more: Any) -> Stats:
    return Stats(
        id=name, space_id="s", dimension=4, items=items, image_vectors=items, text_vectors=0, created_s=0.0, **more
    )


def test_recall_generations_and_failed_merges_are_told() -> None:
    generations = tuple(
        GenerationState(number=n, space_id="s", dimension=4, active=n == 3, items=1, created_s=0.0) for n in (2, 3)
    )
    index = IndexState(
        Modality.IMAGE,
        merged=5,
        pending=2,
        hidden=1,
        merging=True,
        last_merge=LastMerge(ended_s=1.0, took_s=2.5, error="the disk is full"),
        recall=Recall(0.75, 40, 0.0),
    )
    row = stats("photos", 7, generations=generations, indexes=(index,), sizes=Sizes(1, 2, 3, 4))
    now = read(of(Listed([Told(row)])))
    labels = {"collection": "photos", "modality": "image"}
    told = {
        name: now.sum(f"twinlens_index_{name}", **labels)
        for name in ("merged_vectors", "pending_vectors", "hidden_vectors", "merging", "merge_failed", "recall")
    }
    assert told == {
        "merged_vectors": 5,
        "pending_vectors": 2,
        "hidden_vectors": 1,
        "merging": 1,
        "merge_failed": 1,
        "recall": 0.75,
    }
    assert now.sum("twinlens_index_last_merge_seconds", **labels) == 2.5
    assert now.sum("twinlens_index_recall_queries", **labels) == 40
    assert now.sum("twinlens_collection_generation") == 3
    assert now.sum("twinlens_collection_generations") == 2
    parts = {sample.labels["part"]: sample.value for sample in now.samples("twinlens_collection_bytes")}
    assert parts == {"database": 1, "indexes": 2, "pictures": 3, "memory": 4}


def test_of_very_many_collections_all_are_counted_and_the_first_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection_gauges, "MOST_COLLECTIONS", 20)
    now = read(of(Listed([Told(stats(f"c{i:03}", 1)) for i in range(250)])))
    assert now.sum("twinlens_collections", state="sound") == 250
    told = {sample.labels["collection"] for sample in now.samples("twinlens_collection_items")}
    assert told == {f"c{i:03}" for i in range(20)}


def test_collections_that_do_not_answer_hold_nothing_up_and_are_told_as_they_were() -> None:
    catalog = Listed([Told(stats("photos", 3))])
    gauges = of(catalog, wait_s=0.05)
    while not read(gauges).sum("twinlens_collection_items"):
        pass
    catalog.open.clear()
    catalog.rows = [Told(stats("photos", 4))]
    now = read(gauges)
    assert now.sum("twinlens_collection_items") == 3
    assert now.sum("twinlens_collections_age_seconds") > 0
    readers = [thread for thread in threading.enumerate() if thread.name == "twinlens-collection-gauges"]
    read(gauges)
    assert [thread for thread in threading.enumerate() if thread.name == "twinlens-collection-gauges"] == readers
    catalog.open.set()
    while read(gauges).sum("twinlens_collection_items") != 4:
        pass


@pytest.mark.parametrize("error", [CollectionError("the catalog is closed"), RuntimeError("what nobody expected")])
def test_what_cannot_be_read_leaves_what_was_read(error: Exception) -> None:
    catalog = Listed([Told(stats("photos", 3))])
    gauges = of(catalog)
    read(gauges)
    catalog.broken = error
    assert read(gauges).sum("twinlens_collection_items") == 3
