"""Collections of twenty items, backed up and restored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.support.items import DIMENSION, SPACE, axis, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality, NewItem
from twinlens.index.operations.steps import Backup, Progress


def twenty_photos(catalog: Catalog) -> Collection:
    """A collection of the items 0 to 19."""
    made = catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
    made.upsert([item(number) for number in range(20)], space_id=SPACE)
    return made


def item(number: int, **fields: str) -> NewItem:
    """One of twenty items, of which some share a picture."""
    picture = b"picture %d" % (number % 15)
    return new_item(f"item-{number:02d}", image_vector=axis(number % DIMENSION), image=picture, **fields)


def back_up(collection: Collection, place: str, backup: str = "") -> Backup:
    """Makes a backup and returns it."""
    *steps, made = collection.backup(place, backup=backup)
    assert all(isinstance(step, Progress) for step in steps)
    assert isinstance(made, Backup)
    return made


def restore(catalog: Catalog, place: str, backup: str, *, id: str = "", replace: bool = False) -> Collection:  # noqa: A002
    """Restores a backup and returns the collection."""
    *steps, restored = catalog.restore(place, backup, id=id, replace=replace)
    assert all(isinstance(step, Progress) for step in steps)
    assert isinstance(restored, Collection)
    return restored


def contents(collection: Collection) -> dict[str, tuple[object, ...]]:
    """All that a collection holds, by id: items, pictures and vectors."""
    vectors: dict[str, NDArray[np.float32]] = {}
    for ids, rows in collection.iter_vectors(Modality.IMAGE):
        vectors.update(zip(ids, rows, strict=True))
    return {
        item.id: (item, collection.get_image(item.id) if item.has_image else None, vectors[item.id].tobytes())
        for item in collection.list(limit=1000)
    }


def files_below(folder: Path) -> set[str]:
    """Files by their path below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def catalog_folder(catalog: Catalog, id: str) -> Path:  # noqa: A002
    """Where a collection of a catalog lies."""
    return catalog._folder / id
