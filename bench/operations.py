"""What operations on a whole collection take: check, backup, restore and near-duplicates; seconds and memory.

    python bench/operations.py [--rows 50000] [--dimension 512] [--kind hnsw] [--json FILE]

Vectors are clustered and synthetic, one item in ten has a picture of its own of 2 kB, one in fifty is a copy of another
with a little noise. Memory is what an operation adds to the process at most. "while written" lets one thread replace
items of the collection meanwhile, in batches of 16.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.engines.dataset import make_dataset, open_dataset  # noqa: E402
from twinlens.index.catalog import Catalog  # noqa: E402
from twinlens.index.collection import Collection  # noqa: E402
from twinlens.index.item import Modality, NewItem  # noqa: E402
from twinlens.index.kinds.kind import Kind  # noqa: E402
from twinlens.index.operations.steps import DuplicateGroup, Finding  # noqa: E402

SPACE = "space"
BATCH = 256
THRESHOLD = 0.97


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement."""

    operation: str
    seconds: float
    items_per_s: float
    memory_mib: float
    found: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--kind", default="hnsw", help="of the index whose searches find duplicates")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = list(measure(Path(folder), options.rows, options.dimension, Kind(options.kind)))
    table = Table(title=f"{options.rows:,} vectors of {options.dimension} values")
    for name in ("operation", "seconds", "items/s", "memory MiB", "found"):
        table.add_column(name, justify="left" if name in {"operation", "found"} else "right")
    for f in figures:
        table.add_row(f.operation, f"{f.seconds:.2f}", f"{f.items_per_s:,.0f}", f"{f.memory_mib:.0f}", f.found)
    Console(width=max(Console().width, 120)).print(table)
    if options.json is not None:
        content = {"rows": options.rows, "dimension": options.dimension, "kind": options.kind}
        options.json.write_text(json.dumps({**content, "figures": [asdict(f) for f in figures]}, indent=2) + "\n")


def measure(folder: Path, rows: int, dimension: int, kind: Kind) -> Iterator[Figure]:
    make_dataset(folder, rows, dimension, queries=1)
    vectors = with_copies(np.array(open_dataset(folder).vectors))
    catalog, place = Catalog(folder / "data"), str(folder / "backups")
    collection = catalog.create("photos", space_id=SPACE, dimension=dimension, kind=Kind.FLAT)
    for start in range(0, rows, BATCH):
        store(collection, vectors, range(start, min(start + BATCH, rows)))
    collection.merge()
    yield timed("check", collection.check(), rows)
    yield timed("backup", collection.backup(place, backup="first"), rows)
    yield timed("backup again", collection.backup(place, backup="second"), rows)
    with written(collection, vectors):
        yield timed("check while written", collection.check(), rows)
        yield timed("backup while written", collection.backup(place, backup="third"), rows)
    yield timed("restore", catalog.restore(place, "first", id="copy"), rows)
    catalog.delete("copy")
    for exact, which in ((True, Kind.FLAT), (False, kind)):
        collection.merge(kind=which)
        groups = collection.duplicates(Modality.IMAGE, threshold=THRESHOLD, exact=exact)
        yield timed(f"duplicates, {'all with all' if exact else which}", groups, rows)
    catalog.close()


def with_copies(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors, one in fifty of them a copy of another with a cosine of about 0.99."""
    rng = np.random.default_rng(1)
    copies, originals = rng.permutation(len(vectors))[: 2 * (len(vectors) // 50)].reshape(2, -1)
    noise = rng.standard_normal((len(copies), vectors.shape[1])).astype(np.float32)
    vectors[copies] = vectors[originals] + 0.14 * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    return vectors


def store(collection: Collection, vectors: NDArray[np.float32], numbers: Iterable[int]) -> None:
    collection.upsert(
        [
            NewItem(
                f"item-{i:09d}",
                {Modality.IMAGE: vectors[i]},
                image=b"%09d" % i * 220 if i % 10 == 0 else None,
                caption=f"caption {i}",
                metadata={"number": i},
            )
            for i in numbers
        ],
        space_id=SPACE,
    )


@contextmanager
def written(collection: Collection, vectors: NDArray[np.float32]) -> Iterator[None]:
    """Replaces items of the collection over and over until the block ends."""
    stop = threading.Event()

    def write() -> None:
        rng = np.random.default_rng(2)
        while not stop.is_set():
            store(collection, vectors, rng.integers(len(vectors), size=16).tolist())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def timed(operation: str, steps: Iterable[Any], rows: int) -> Figure:
    """Goes through all steps while a thread watches the memory."""
    before, peak, stop = resident_mib(), [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            peak[0] = max(peak[0], resident_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun_s = time.perf_counter()
    counts = {Finding: 0, DuplicateGroup: 0}
    for step in steps:
        if type(step) in counts:
            counts[type(step)] += 1
    seconds = time.perf_counter() - begun_s
    stop.set()
    watcher.join()
    found = {"check": f"{counts[Finding]} findings", "dupli": f"{counts[DuplicateGroup]} groups"}.get(operation[:5], "")
    return Figure(operation, seconds, rows / seconds, max(peak[0] - before, 0.0), found)


def resident_mib() -> float:
    """What the process has of its own now; files that are only mapped do not count."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
