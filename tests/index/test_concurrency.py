"""Counted operations from several threads at once; whichever way they interleave, these things must hold."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.errors import CollectionNotFound, ItemNotFound, SpaceMismatch
from twinlens.index.item import Hit, Modality


def together(*work: Callable[[], None]) -> None:
    with ThreadPoolExecutor(len(work)) as pool:
        for future in [pool.submit(one) for one in work]:
            future.result()


def search(collection: Collection, query: np.ndarray, top_k: int) -> list[Hit]:
    return collection.search(query[np.newaxis], modality=Modality.IMAGE, top_k=top_k, space_id=SPACE)[0]


def test_writers_read_their_writes_and_searches_see_no_ghosts_and_no_gaps(collection: Collection) -> None:
    collection.upsert([new_item(f"stable-{i}", image_vector=axis(i)) for i in range(3)], space_id=SPACE)
    collection.upsert([new_item("moving", image_vector=axis(3))], space_id=SPACE)
    known = {"moving", *(f"stable-{i}" for i in range(3)), *(f"{w}-{i}" for w in range(2) for i in range(6))}

    def write(name: int) -> None:
        rng = np.random.default_rng(name)
        for count in range(60):
            item_id, vector = f"{name}-{rng.integers(6)}", rng.standard_normal(DIMENSION)
            collection.upsert(
                [
                    new_item(item_id, image_vector=vector, image=b"%d" % rng.integers(4)),
                    new_item("moving", image_vector=axis(3 + count % 2)),
                ],
                space_id=SPACE,
            )
            first = search(collection, vector, 1)[0]
            assert first.item.id == item_id
            assert first.score > 0.999999
            if count % 3 == 0:
                assert collection.delete([item_id]) == 1
                assert item_id not in {hit.item.id for hit in search(collection, vector, 100)}

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(120):
            hits = search(collection, rng.standard_normal(DIMENSION), 100)
            ids = [hit.item.id for hit in hits]
            assert len(set(ids)) == len(ids)
            assert {"moving", "stable-0", "stable-1", "stable-2"} <= set(ids) <= known
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            assert len(search(collection, axis(0), 4)) == 4

    together(lambda: write(0), lambda: write(1), lambda: read(2), lambda: read(3))
    items = collection.list(limit=1000)
    assert len(search(collection, axis(0), 1000)) == len(items) == collection.stats().items


def test_pictures_shared_between_threads_are_never_lost(collection: Collection, catalog: Catalog) -> None:
    def churn(name: int) -> None:
        rng = np.random.default_rng(name)
        for count in range(60):
            picture = b"%d" % rng.integers(3)
            collection.upsert([new_item(f"{name}", image=picture)], space_id=SPACE)
            assert collection.get_image(f"{name}") == picture
            if count % 2:
                collection.delete([f"{name}"])

    def read() -> None:
        for count in range(200):
            with suppress(ItemNotFound):
                assert collection.get_image(f"{count % 3}") in {b"0", b"1", b"2"}

    together(lambda: churn(0), lambda: churn(1), lambda: churn(2), read)
    collection.delete(["0", "1", "2"])
    assert not list(catalog._folder.glob("photos/blobs/*/*/*"))


def test_searches_go_on_while_a_generation_takes_over(collection: Collection) -> None:
    collection.upsert([new_item(f"{i}", image_vector=axis(i)) for i in range(DIMENSION)], space_id=SPACE)
    spaces = [SPACE, "space-two"]

    def swap() -> None:
        for count in range(12):
            generation = collection.begin_generation(space_id=spaces[(count + 1) % 2], dimension=DIMENSION)
            for item in collection.missing(generation, limit=100):
                vector = axis(int(item.id)) if count % 2 else axis(DIMENSION - 1 - int(item.id))
                collection.write_vectors(generation, {item.id: {Modality.IMAGE: vector}})
            collection.activate(generation)

    def read(space_id: str) -> None:
        for count in range(150):
            number = count % DIMENSION
            try:
                hits = collection.search(
                    axis(number)[np.newaxis],
                    modality=Modality.IMAGE,
                    top_k=3,
                    space_id=space_id,
                )[0]
            except SpaceMismatch:
                continue
            assert hits[0].item.id == f"{number if space_id == SPACE else DIMENSION - 1 - number}"
            assert len(hits) == 3

    together(swap, lambda: read(spaces[0]), lambda: read(spaces[1]))
    assert collection.space_id == SPACE


def test_collections_are_made_used_and_deleted_from_many_threads(catalog: Catalog) -> None:
    def work(name: int) -> None:
        for _ in range(4):
            mine = catalog.create(f"own-{name}", space_id=SPACE, dimension=DIMENSION)
            mine.upsert([new_item("a")], space_id=SPACE)
            assert f"own-{name}" in {collection.id for collection in catalog.list()}
            catalog.delete(f"own-{name}")

    def look() -> None:
        for count in range(60):
            with suppress(CollectionNotFound):
                assert catalog.get(f"own-{count % 3}").stats().items in {0, 1}

    together(lambda: work(0), lambda: work(1), lambda: work(2), look)
    assert catalog.list() == []
