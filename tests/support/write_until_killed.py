"""A writer that is meant to be killed: it says what it is about to do, does it, and says that it was acknowledged.

    python tests/support/write_until_killed.py ROOT SEED

Each step is a JSON line `{"step": …}` before and `{"done": …}` after it. Vectors and pictures follow from the step, so
whoever reads the lines can tell what must be in the collection.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality, NewItem
from twinlens.index.options import IndexOptions

SPACES = {"space-a": 16, "space-b": 24}
Step = dict[str, Any]
Model = dict[str, int]  # id -> version


def vector(item_id: str, version: int, space_id: str) -> NDArray[np.float32]:
    """The unit vector of one version of an item in a space, shape (d,)."""
    seed = [*item_id.encode(), version, *space_id.encode()]
    made = np.random.default_rng(seed).standard_normal(SPACES[space_id]).astype(np.float32)
    unit: NDArray[np.float32] = made / np.linalg.norm(made)
    return unit


def picture(version: int) -> bytes | None:
    """The picture of a version: none, or one of few, so that items share pictures."""
    return None if version % 5 == 0 else b"picture %d" % (version % 7)


def applied(model: Mapping[str, int], space_id: str, step: Step) -> tuple[Model, str]:
    """What is in the collection after a step."""
    after = dict(model)
    match step["kind"]:
        case "upsert":
            after.update(step["items"])
        case "delete":
            for item_id in step["ids"]:
                after.pop(item_id, None)
        case "refill":
            space_id = step["space_id"]
    return after, space_id


def perform(collection: Collection, step: Step, model: Mapping[str, int]) -> None:
    """Does a step for real."""
    match step["kind"]:
        case "upsert":
            space_id = collection.space_id
            items = [
                NewItem(item_id, {Modality.IMAGE: vector(item_id, version, space_id)}, picture(version), f"{version}")
                for item_id, version in step["items"]
            ]
            collection.upsert(items, space_id=space_id)
        case "delete":
            collection.delete(step["ids"])
        case "refill":
            space_id = step["space_id"]
            generation = collection.begin_generation(space_id=space_id, dimension=SPACES[space_id])
            while missing := collection.missing(generation, limit=16):
                made = {item.id: {Modality.IMAGE: vector(item.id, model[item.id], space_id)} for item in missing}
                collection.write_vectors(generation, made)
            collection.activate(generation)


def next_step(rng: np.random.Generator, space_id: str) -> Step:
    """Chooses what to do."""
    kind = rng.choice(["upsert", "delete", "refill"], p=[0.7, 0.25, 0.05])
    ids = [f"item-{number}" for number in rng.integers(60, size=rng.integers(1, 12))]
    if kind == "upsert":
        return {"kind": "upsert", "items": [[item_id, int(rng.integers(10**6))] for item_id in ids]}
    if kind == "delete":
        return {"kind": "delete", "ids": ids}
    return {"kind": "refill", "space_id": next(other for other in SPACES if other != space_id)}


def say(what: Mapping[str, Any]) -> None:
    """Writes one line at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Goes on until killed."""
    root, seed = Path(sys.argv[1]), int(sys.argv[2])
    rng = np.random.default_rng(seed)
    catalog = Catalog(root, options=IndexOptions(threads=1))
    collection = catalog.get("photos")
    space_id = collection.space_id
    model = {item.id: int(item.caption) for item in collection.list(limit=1000)}
    while True:
        step = next_step(rng, space_id)
        say({"step": step})
        perform(collection, step, model)
        model, space_id = applied(model, space_id, step)
        say({"done": True})


if __name__ == "__main__":
    main()
