"""A writer that is meant to be killed: it says what it is about to do, does it, and says that it was acknowledged.

    python tests/support/write_until_killed.py ROOT SEED

Each step is a JSON line `{"step": …, "at_s": the system's monotonic clock}` before and `{"done": seconds}` after it.
Vectors and pictures follow from the step, so whoever reads the lines can tell what must be in the collection.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality, NewItem
from twinlens.index.kinds import auto
from twinlens.index.kinds.kind import Kind
from twinlens.index.options import IndexOptions

SPACES = {"space-a": 16, "space-b": 24}
COLLECTION = "photos"
# Few enough that the background merges all the time.
OPTIONS = IndexOptions(threads=1, least_merged=32)
LEAST_ROWS = 64  # from which a kind gets its structure
SHARES = {
    "upsert": 0.36,
    "delete": 0.14,
    "merge": 0.14,
    "fill": 0.1,
    "activate": 0.08,
    "drop": 0.05,
    "backup": 0.06,
    "restore": 0.03,
    "reopen": 0.04,
}
BACKUPS = "backups"  # beside the collections
Step = dict[str, Any]
Model = dict[str, int]  # id -> version


def vector(item_id: str, version: int, space_id: str, modality: Modality = Modality.IMAGE) -> NDArray[np.float32]:
    """The unit vector of one version of an item in a space, shape (d,)."""
    seed = [*item_id.encode(), version, *space_id.encode(), *modality.encode()]
    made = np.random.default_rng(seed).standard_normal(SPACES[space_id]).astype(np.float32)
    unit: NDArray[np.float32] = made / np.linalg.norm(made)
    return unit


def vectors(item_id: str, version: int, space_id: str) -> dict[Modality, NDArray[np.float32]]:
    """All vectors of one version of an item: some have none for a text."""
    wanted = list(Modality) if version % 3 else [Modality.IMAGE]
    return {modality: vector(item_id, version, space_id, modality) for modality in wanted}


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
        case "activate":
            space_id = step["space_id"]
        case "restore":
            return dict(step["model"]), step["space_id"]
    return after, space_id


def perform(collection: Collection, step: Step, model: Mapping[str, int]) -> None:
    """Does a step for real."""
    match step["kind"]:
        case "upsert":
            space_id = collection.space_id
            items = [
                NewItem(item_id, vectors(item_id, version, space_id), picture(version), f"{version}")
                for item_id, version in step["items"]
            ]
            collection.upsert(items, space_id=space_id)
        case "delete":
            collection.delete(step["ids"])
        case "merge":
            collection.merge(kind=Kind(step["index_kind"]) if step["index_kind"] else None)
        case "fill":
            _fill(collection, step["space_id"], model, batches=2)
        case "activate":
            collection.activate(_fill(collection, step["space_id"], model, batches=10**6))
        case "drop":
            space_id = step["space_id"]
            collection.drop_generation(collection.begin_generation(space_id=space_id, dimension=SPACES[space_id]))
        case "backup":
            for _ in collection.backup(step["to"], backup=step["backup"]):
                pass


def _fill(collection: Collection, space_id: str, model: Mapping[str, int], batches: int) -> int:
    generation = collection.begin_generation(space_id=space_id, dimension=SPACES[space_id])
    for _ in range(batches):
        missing = collection.missing(generation, limit=24)
        if not missing:
            break
        made = {item.id: vectors(item.id, model[item.id], space_id) for item in missing}
        collection.write_vectors(generation, made)
    return generation


def next_step(rng: np.random.Generator, space_id: str, restorable: Sequence[Step]) -> Step:
    """Chooses what to do.

    Args:
        rng: What decides.
        space_id: The active one.
        restorable: Steps that would restore a backup.
    """
    kind = str(rng.choice(list(SHARES), p=list(SHARES.values())))
    match kind:
        case "upsert":
            ids = [f"item-{number}" for number in rng.integers(300, size=rng.integers(1, 40))]
            return {"kind": kind, "items": [[item_id, int(rng.integers(10**6))] for item_id in ids]}
        case "delete":
            return {"kind": kind, "ids": [f"item-{number}" for number in rng.integers(300, size=rng.integers(1, 20))]}
        case "merge":
            return {"kind": kind, "index_kind": str(rng.choice(["", *Kind]))}
        case "restore" if restorable:
            return restorable[int(rng.integers(len(restorable)))]
        case "backup" | "restore":
            return {"kind": "backup", "backup": f"backup-{rng.integers(2**62)}"}
        case "reopen":
            return {"kind": kind}
    return {"kind": kind, "space_id": next(other for other in SPACES if other != space_id)}


def say(what: Mapping[str, Any]) -> None:
    """Writes one line at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Goes on until killed."""
    root, seed = Path(sys.argv[1]), int(sys.argv[2])
    auto.LEAST_ROWS = LEAST_ROWS
    rng = np.random.default_rng(seed)
    catalog = Catalog(root, options=OPTIONS)
    collection = catalog.get(COLLECTION)
    space_id = collection.space_id
    model = {item.id: int(item.caption) for item in collection.list(limit=1000)}
    restorable: list[Step] = []
    while True:
        step = next_step(rng, space_id, restorable)
        start = time.monotonic()
        say({"step": step, "at_s": start})
        match step["kind"]:
            case "reopen":
                catalog.close()
                catalog = Catalog(root, options=OPTIONS)
                collection = catalog.get(COLLECTION)
            case "restore":
                for _ in catalog.restore(str(root / BACKUPS), step["backup"], id=COLLECTION, replace=True):
                    pass
                collection = catalog.get(COLLECTION)
            case _:
                perform(collection, {**step, "to": str(root / BACKUPS)}, model)
        model, space_id = applied(model, space_id, step)
        if step["kind"] == "backup":
            restorable.append({**step, "kind": "restore", "model": model, "space_id": space_id})
        say({"done": time.monotonic() - start})


if __name__ == "__main__":
    main()
