"""Any sequence of operations on a collection, of every kind, beside a dictionary."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

from tests.support.few_rows import structures_from
from tests.support.oracle import assert_exact, assert_sound
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality, NewItem
from twinlens.index.kinds.kind import Kind
from twinlens.index.options import IndexOptions

# Few enough to be merged in the background all the time.
OPTIONS = IndexOptions(threads=1, least_merged=6)
SPACES = {"one": 6, "two": 9}
# Where syncing costs nothing: all these steps wait for the disk otherwise.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

ids = st.integers(0, 40).map("item {}".format)
# Few vectors for many items: ties, and duplicates by the dozen, are the rule.
looks = st.integers(0, 12)
kinds = st.sampled_from(Kind)
modalities = st.sampled_from(Modality)


def vector(look: int, space_id: str) -> NDArray[np.float32]:
    made = np.random.default_rng([look, *space_id.encode()]).standard_normal(SPACES[space_id])
    return made.astype(np.float32)


def vectors(look: int, space_id: str) -> dict[Modality, NDArray[np.float32]]:
    """Of the twelve looks some have one vector, some two, one none."""
    has = {Modality.IMAGE: look % 4 != 1, Modality.TEXT: look % 3 != 1}
    return {modality: vector(look, space_id) for modality, there in has.items() if there}


class CollectionMachine(RuleBasedStateMachine):
    kind = Kind.AUTO

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=IN_MEMORY))
        self.root = self.folder / "0"
        self.catalog = Catalog(self.root, options=OPTIONS)
        self.collection: Collection = self.catalog.create("photos", space_id="one", dimension=6, kind=self.kind)
        self.space_id = "one"
        self.model: dict[str, int] = {}
        self.filled: set[str] = set()  # of the space that is not active

    def teardown(self) -> None:
        self.catalog.close()
        shutil.rmtree(self.folder)

    @property
    def other(self) -> str:
        return "two" if self.space_id == "one" else "one"

    def expected(self, modality: Modality) -> dict[str, NDArray[np.float32]]:
        made = {item_id: vectors(look, self.space_id) for item_id, look in self.model.items()}
        return {item_id: of_item[modality] for item_id, of_item in made.items() if modality in of_item}

    def open(self) -> None:
        self.catalog = Catalog(self.root, options=OPTIONS)
        self.collection = self.catalog.get("photos")

    @initialize(many=st.dictionaries(ids, looks, max_size=41))
    def start(self, many: dict[str, int]) -> None:
        self.upsert(many)

    @rule(items=st.dictionaries(ids, looks, max_size=9))
    def upsert(self, items: dict[str, int]) -> None:
        given = [
            NewItem(item_id, vectors(look, self.space_id), caption=f"{look}", metadata={"look": look})
            for item_id, look in items.items()
        ]
        self.collection.upsert(given, space_id=self.space_id)
        self.model.update(items)
        self.filled -= items.keys()

    @rule(given=st.lists(ids, max_size=9))
    def delete(self, given: list[str]) -> None:
        assert self.collection.delete(given) == len(self.model.keys() & set(given))
        for item_id in given:
            self.model.pop(item_id, None)
        self.filled -= set(given)

    @rule(least=looks)
    def delete_by_filter(self, least: int) -> None:
        gone = {item_id for item_id, look in self.model.items() if look >= least}
        assert self.collection.count(f"look >= {least}") == len(gone)
        if least > 9:
            assert self.collection.delete(filter=f"look >= {least}") == len(gone)
            for item_id in gone:
                del self.model[item_id]
            self.filled -= gone

    @rule(there=st.booleans())
    def index_or_not_what_filters_ask_for(self, there: bool) -> None:
        if there:
            self.collection.add_metadata_index("look")
        elif self.collection.metadata_indexes():
            self.collection.remove_metadata_index("look")
        assert len(self.collection.metadata_indexes()) == there

    @rule(kind=st.none() | kinds)
    def merge(self, kind: Kind | None) -> None:
        self.collection.merge(kind=kind)
        assert kind in {None, self.collection.kind}

    @rule()
    def merge_in_the_background(self) -> None:
        self.collection.merge(wait=False)

    @rule()
    def close_and_open(self) -> None:
        self.catalog.close()
        self.open()

    @rule()
    def lose_the_process(self) -> None:
        """What a kill leaves is what is on disk at that moment: a copy of it, taken while all is open."""
        copy = self.folder / f"{int(self.root.name) + 1}"
        with suppress(shutil.Error):  # names what a merge removed meanwhile; all the rest is copied
            shutil.copytree(self.root, copy)
        self.catalog.close()
        shutil.rmtree(self.root)
        self.root = copy
        self.open()

    @rule(seed=st.integers(0, 1000))
    def flip_a_bit_of_what_is_derived(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.catalog.close()
        files = sorted(path for path in self.root.glob("collections/photos/indexes/**/*") if path.is_file())
        files = [path for path in files if path.stat().st_size]
        if files:
            path = files[rng.integers(len(files))]
            content = bytearray(path.read_bytes())
            content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
            path.write_bytes(content)
        self.open()

    @rule()
    def lose_what_is_derived(self) -> None:
        self.catalog.close()
        shutil.rmtree(self.root / "collections" / "photos" / "indexes", ignore_errors=True)
        self.open()

    @rule(limit=st.integers(1, 50))
    def fill(self, limit: int) -> None:
        generation = self.collection.begin_generation(space_id=self.other, dimension=SPACES[self.other])
        missing = self.collection.missing(generation, limit=limit)
        assert len(missing) == min(limit, len(self.model) - len(self.filled))
        assert not self.filled & {item.id for item in missing}
        self.collection.write_vectors(
            generation, {item.id: vectors(self.model[item.id], self.other) for item in missing}
        )
        self.filled |= {item.id for item in missing}

    @precondition(lambda self: self.filled == self.model.keys())
    @rule()
    def activate(self) -> None:
        generation = self.collection.begin_generation(space_id=self.other, dimension=SPACES[self.other])
        self.collection.activate(generation)
        self.space_id = self.other
        self.filled = set(self.model)

    @rule()
    def drop(self) -> None:
        generation = self.collection.begin_generation(space_id=self.other, dimension=SPACES[self.other])
        self.collection.drop_generation(generation)
        self.filled = set()

    @rule(modality=modalities, seed=st.integers(0, 1000), top_k=st.sampled_from([1, 2, 7, 30, 100]))
    def search_exactly(self, modality: Modality, seed: int, top_k: int) -> None:
        query = np.random.default_rng(seed).standard_normal(SPACES[self.space_id])
        found = self.found(query, modality, top_k, exact=True)
        assert_exact(query, self.expected(modality), top_k, found)

    @rule(modality=modalities, look=looks, top_k=st.sampled_from([1, 2, 7, 30, 100]))
    def search(self, modality: Modality, look: int, top_k: int) -> None:
        query, known = vector(look, self.space_id), self.expected(modality)
        found = self.found(query, modality, top_k)
        assert_sound(query, known, top_k, found)
        if any(look == self.model[item_id] for item_id in known):
            assert found[0][1] > 1 - 1e-6, "a vector was not found by itself"
        if top_k >= len(known):
            assert_exact(query, known, top_k, found)

    @rule(modality=modalities, look=looks, least=looks, top_k=st.sampled_from([1, 3, 100]), exact=st.booleans())
    def search_by_filter(self, modality: Modality, look: int, least: int, top_k: int, exact: bool) -> None:
        known = {item_id: v for item_id, v in self.expected(modality).items() if self.model[item_id] >= least}
        query = vector(look, self.space_id)
        found = self.found(query, modality, top_k, exact=exact, where=f"look >= {least}")
        (assert_exact if exact or top_k == 100 else assert_sound)(query, known, top_k, found)

    def found(
        self, query: NDArray[Any], modality: Modality, top_k: int, *, exact: bool = False, where: str = ""
    ) -> list[tuple[str, float]]:
        hits = self.collection.search(
            query[np.newaxis], modality=modality, top_k=top_k, space_id=self.space_id, exact=exact, filter=where
        )[0]
        assert all(hit.item.caption == f"{self.model[hit.item.id]}" for hit in hits)
        return [(hit.item.id, hit.score) for hit in hits]

    @invariant()
    def counts_are_right(self) -> None:
        stats = self.collection.stats()
        assert (stats.items, stats.space_id) == (len(self.model), self.space_id)
        assert stats.image_vectors == len(self.expected(Modality.IMAGE))
        assert stats.text_vectors == len(self.expected(Modality.TEXT))

    @invariant()
    def items_are_right(self) -> None:
        assert {item.id: int(item.caption) for item in self.collection.list(limit=100)} == self.model


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("examples", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_a_collection_is_a_dictionary_that_can_be_searched(kind: Kind, examples: int) -> None:
    machine = type("OfKind", (CollectionMachine,), {"kind": kind})
    told = settings(
        max_examples=examples,
        stateful_step_count=30,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    with structures_from(16):
        run_state_machine_as_test(machine, settings=told)
