"""Which precision and provider computed the vectors of a generation."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support.items import DIMENSION, SPACE, axis, new_item
from tests.support.old_databases import write_old_collection
from twinlens.index.catalog import Catalog
from twinlens.index.errors import CollectionNotFound
from twinlens.index.item import Modality

INT8 = "image int8 on cpu, text fp32 on cpu"
FP32 = "image fp32 on cpu, text fp32 on cpu"


def variants(root: Path, variant: str, *ids: str) -> tuple[str, ...]:
    """Stores items in a process that computes with a variant, and tells what the collection then says."""
    with closing(Catalog(root, variant=variant)) as catalog:
        try:
            collection = catalog.get("photos")
        except CollectionNotFound:
            collection = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
        collection.upsert([new_item(item_id) for item_id in ids], space_id=SPACE)
        return collection.stats().variants


def test_an_empty_collection_was_computed_by_nothing(tmp_path: Path) -> None:
    assert variants(tmp_path, INT8) == ()


def test_what_computed_the_vectors_is_kept_once(tmp_path: Path) -> None:
    assert variants(tmp_path, INT8, "a", "b") == (INT8,)
    assert variants(tmp_path, INT8, "c") == (INT8,)


def test_a_change_is_kept_beside_what_was_before(tmp_path: Path) -> None:
    variants(tmp_path, INT8, "a")
    assert variants(tmp_path, FP32) == (INT8,)
    assert variants(tmp_path, FP32, "b") == (FP32, INT8)


def test_an_unknown_variant_is_not_kept(tmp_path: Path) -> None:
    assert variants(tmp_path, "", "a") == ()


def test_each_generation_has_its_own(tmp_path: Path) -> None:
    variants(tmp_path, INT8, "a")
    with closing(Catalog(tmp_path, variant=FP32)) as catalog:
        collection = catalog.get("photos")
        number = collection.begin_generation(space_id="new", dimension=4)
        for item in collection.missing(number, limit=10):
            collection.write_vectors(number, {item.id: {Modality.IMAGE: np.ones(4)}})
        assert collection.stats().variants == (INT8,)
        before = collection._state.current().generation.number
        collection.activate(number)
        assert collection.stats().variants == (FP32,)
        collection.drop_generation(before)
        with collection._state.database.read() as connection:
            assert connection.execute("SELECT generation, variant FROM variants").fetchall() == [(number, FP32)]


def test_a_collection_from_before_variants_were_kept_is_brought_forward(tmp_path: Path) -> None:
    write_old_collection(tmp_path, "photos", 1, SPACE, {"a": axis(0)})
    assert variants(tmp_path, FP32) == ()
    assert variants(tmp_path, FP32, "b") == (FP32,)
    with closing(Catalog(tmp_path)) as catalog:
        assert [item.id for item in catalog.get("photos").list()] == ["a", "b"]


@pytest.mark.parametrize("variant", ["'; DROP TABLE items; --", "ü" * 300])
def test_a_variant_is_only_ever_a_text(tmp_path: Path, variant: str) -> None:
    assert variants(tmp_path, variant, "a") == (variant,)
