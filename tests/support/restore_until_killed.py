"""A collection that is backed up, changed and replaced by its backup over and over, until it is killed.

    python -m tests.support.restore_until_killed ROOT

The collection holds ten items of one version, which changes from 1 to 2 and back. What is printed was acknowledged.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality, NewItem

SPACE = "space"
ITEMS = 10


def picture(version: int, number: int) -> bytes:
    """The picture of an item of a version."""
    return b"version %d of picture %d" % (version, number)


def vector(version: int, number: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The vector of an item of a version, shape (4,)."""
    return np.array([version, number, 1, 0], dtype=np.float32)


def store(collection: Collection, version: int) -> None:
    """Replaces all items by those of a version."""
    items = [
        NewItem(f"{i}", {Modality.IMAGE: vector(version, i)}, picture(version, i), f"{version}") for i in range(ITEMS)
    ]
    collection.upsert(items, space_id=SPACE)


def main() -> None:
    """Goes on until killed."""
    root = Path(sys.argv[1])
    catalog, place = Catalog(root / "data"), str(root / "backups")
    for _ in range(1000):
        store(catalog.get("photos"), 2)
        for _ in catalog.restore(place, "version-1", id="photos", replace=True):
            sys.stdout.write("step\n")
            sys.stdout.flush()
        for _ in catalog.get("photos").backup(place):
            sys.stdout.write("step\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
