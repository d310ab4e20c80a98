"""Writing, deleting, searching, merging, checking and backing up from four threads at once, for as long as asked."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.few_rows import structures_from
from tests.support.oracle import TOLERANCE, assert_exact
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality, NewItem
from twinlens.index.kinds.kind import Kind
from twinlens.index.operations.backup import list_backups
from twinlens.index.operations.steps import Backup, Finding
from twinlens.index.options import IndexOptions

D = 16
SPACE = "storm"
VERSIONS = 5
OWNED = 150  # ids of each writer
STABLE = [f"stable-{i}" for i in range(200)]


def vector(item_id: str, version: int) -> NDArray[np.float32]:
    made = np.random.default_rng([version, *item_id.encode()]).standard_normal(D)
    unit: NDArray[np.float32] = (made / np.linalg.norm(made)).astype(np.float32)
    return unit


ALL = {
    item_id: np.stack([vector(item_id, version) for version in range(VERSIONS)])
    for item_id in [*STABLE, *(f"{owner}-{i}" for owner in range(2) for i in range(OWNED))]
}


class Storm:
    """What the threads share. A thread that fails stops the others."""

    def __init__(self, collection: Collection, backups: Path, goes_on: Callable[[], bool]) -> None:
        self.collection = collection
        self._backups = backups
        self.models: list[dict[str, int]] = [{}, {}]
        self._goes_on = goes_on
        self._stopped = threading.Event()

    def rounds(self) -> Iterator[int]:
        for number in itertools.count():
            if self._stopped.is_set() or not self._goes_on():
                return
            yield number

    def run(self, *work: Callable[[], None]) -> None:
        with ThreadPoolExecutor(len(work)) as pool:
            running = [pool.submit(one) for one in work]
            wait(running, return_when=FIRST_EXCEPTION)
            if any(one.done() and one.exception() for one in running):
                self._stopped.set()
            for one in running:
                one.result()

    def search(self, query: NDArray[np.float32], top_k: int, *, exact: bool = False) -> list[tuple[str, float]]:
        hits = self.collection.search(
            query[np.newaxis], modality=Modality.IMAGE, top_k=top_k, space_id=SPACE, exact=exact
        )[0]
        return [(hit.item.id, hit.score) for hit in hits]

    def write(self, owner: int) -> None:
        rng, model = np.random.default_rng(owner), self.models[owner]
        for number in self.rounds():
            chosen = {f"{owner}-{i}": int(rng.integers(VERSIONS)) for i in rng.integers(OWNED, size=1 + number % 12)}
            self.collection.upsert(
                [NewItem(item_id, {Modality.IMAGE: vector(item_id, version)}) for item_id, version in chosen.items()],
                space_id=SPACE,
            )
            model.update(chosen)
            item_id, version = next(iter(chosen.items()))
            found = self.search(vector(item_id, version), 1)
            assert found[0][0] == item_id, "an acknowledged write was not found"
            assert found[0][1] > 1 - 1e-6
            if number % 3 == 0:
                gone = list(chosen)[:5]
                assert self.collection.delete(gone) == len(gone)
                for item_id in gone:
                    version = model.pop(item_id)
                    after = self.search(vector(item_id, version), 1000 if number % 2 else 3)
                    assert item_id not in dict(after), "a deleted item was found"

    def read(self) -> None:
        rng = np.random.default_rng(2)
        for number in self.rounds():
            item_id = str(rng.choice(STABLE))
            query = vector(item_id, 0) if number % 2 else rng.standard_normal(D).astype(np.float32)
            query /= np.linalg.norm(query)
            top_k = int(rng.choice([1, 10, 1000]))
            found = self.search(query, top_k, exact=number % 5 == 0)
            names, scores = [name for name, _ in found], [score for _, score in found]
            assert len(set(names)) == len(names), "an item was found twice"
            assert set(names) <= ALL.keys(), "an item was found that was never stored"
            assert scores == sorted(scores, reverse=True)
            for name, score in found:
                assert np.abs(ALL[name] @ query - score).min() < 10 * TOLERANCE, f"{name} never was this near"
            if number % 2:
                assert names[0] == item_id, "an item that nobody touches was not found"
            if top_k == 1000:
                assert set(STABLE) <= set(names), "items that nobody touches were not found"
            else:
                assert len(found) == top_k

    def operate(self) -> None:
        for number in self.rounds():
            self.collection.merge(kind=list(Kind)[number % len(Kind)])
            match number % 4:
                case 1:
                    findings = [step for step in self.collection.check() if isinstance(step, Finding)]
                    assert findings == [], "a sound collection was found fault with"
                case 2:
                    *_, made = self.collection.backup(str(self._backups))
                    assert isinstance(made, Backup)
                case 3:
                    stats = self.collection.stats()
                    assert len(STABLE) <= stats.items <= len(ALL)
                    assert len(STABLE) <= stats.image_vectors <= len(ALL)

    def check_the_end(self) -> None:
        model = {**dict.fromkeys(STABLE, 0), **self.models[0], **self.models[1]}
        assert {item.id for item in self.collection.list(limit=10**4)} == model.keys()
        stats = self.collection.stats()
        assert stats.items == stats.image_vectors == len(model)
        vectors = {item_id: vector(item_id, version) for item_id, version in model.items()}
        for query in np.random.default_rng(3).standard_normal((5, D)).astype(np.float32):
            for top_k, exact in ((10, True), (len(model), False)):
                assert_exact(query, vectors, top_k, self.search(query, top_k, exact=exact))


@pytest.mark.parametrize("seconds", [1.5, pytest.param(30.0, marks=pytest.mark.slow)])
def test_four_threads_see_no_ghosts_no_gaps_and_their_own_writes(tmp_path: Path, seconds: float) -> None:
    options = IndexOptions(threads=2, least_merged=64)
    with structures_from(100):
        catalog = Catalog(tmp_path, options=options)
        collection = catalog.create("photos", space_id=SPACE, dimension=D)
        collection.upsert([NewItem(i, {Modality.IMAGE: vector(i, 0)}) for i in STABLE], space_id=SPACE)
        end_s = time.monotonic() + seconds
        storm = Storm(collection, tmp_path / "backups", lambda: time.monotonic() < end_s)
        storm.run(lambda: storm.write(0), lambda: storm.write(1), storm.read, storm.operate)
        storm.check_the_end()
        catalog.close()
        catalog = Catalog(tmp_path, options=options)
        storm.collection = catalog.get("photos")
        storm.check_the_end()
        for backup in list_backups(str(tmp_path / "backups"))[-1:]:
            *_, restored = catalog.restore(str(tmp_path / "backups"), backup.id, id="restored")
            assert isinstance(restored, Collection)
            assert [step for step in restored.check() if isinstance(step, Finding)] == []
            assert {item.id for item in restored.list(limit=10**4)} >= set(STABLE)
        catalog.close()
