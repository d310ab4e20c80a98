"""How fast a collection with exact search is: storing, opening, searching.

    python bench/index_flat.py [--rows 100000] [--dimension 512] [--threads 1] [--json FILE]

Vectors are clustered and synthetic. Storing goes through `Collection.upsert` with captions and metadata, no pictures,
so that what is measured is the database; every batch is on disk before the next one starts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality, NewItem
from twinlens.index.options import IndexOptions

SPACE = "bench"


def clustered(rows: int, dimension: int, seed: int) -> NDArray[np.float32]:
    """Points around one centre per thousand rows, shape (rows, dimension)."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((max(rows // 1000, 1), dimension), dtype=np.float32)
    noise = generator.standard_normal((rows, dimension), dtype=np.float32)
    return centres[generator.integers(len(centres), size=rows)] + 0.7 * noise


def items(vectors: NDArray[np.float32], batch: int) -> Iterator[list[NewItem]]:
    """Batches of items that have one picture's vector each."""
    for start in range(0, len(vectors), batch):
        yield [
            NewItem(
                id=f"folder/{start + i:09d}.jpg",
                vectors={Modality.IMAGE: vector},
                caption="a photo",
                metadata={"number": i},
            )
            for i, vector in enumerate(vectors[start : start + batch])
        ]


def milliseconds(call: Callable[[int], object], times: int) -> list[float]:
    """Wall time of each call, after one that does not count."""
    call(0)
    taken = []
    for i in range(times):
        start = time.perf_counter()
        call(i)
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def measure(root: Path, rows: int, dimension: int, threads: int, searches: int) -> dict[str, float]:
    """Runs everything once in an empty folder."""
    figures: dict[str, float] = {}
    vectors = clustered(rows, dimension, seed=0)
    queries = clustered(searches, dimension, seed=1)
    catalog = Catalog(root, options=IndexOptions(threads=threads))
    collection = catalog.create("photos", space_id=SPACE, dimension=dimension)
    start = time.perf_counter()
    for batch in items(vectors, 256):
        collection.upsert(batch, space_id=SPACE)
    figures["build_s"] = time.perf_counter() - start
    figures["upsert_256_per_s"] = rows / figures["build_s"]
    again = list(items(vectors[: min(rows, 6400)], 64))
    start = time.perf_counter()
    for batch in again:
        collection.upsert(batch, space_id=SPACE)
    figures["replace_64_per_s"] = sum(map(len, again)) / (time.perf_counter() - start)
    start = time.perf_counter()
    catalog.close()
    figures["close_s"] = time.perf_counter() - start

    start = time.perf_counter()
    catalog = Catalog(root, options=IndexOptions(threads=threads))
    collection = catalog.get("photos")
    figures["open_s"] = time.perf_counter() - start

    def search(collection: Collection, of: slice) -> object:
        return collection.search(queries[of], modality=Modality.IMAGE, top_k=10, space_id=SPACE)

    one = milliseconds(lambda i: search(collection, slice(i, i + 1)), searches)
    figures["search_1_p50_ms"], figures["search_1_p99_ms"] = np.percentile(one, [50, 99]).tolist()
    many = milliseconds(lambda _: search(collection, slice(0, 64)), 5)
    figures["search_64_per_s"] = min(64, searches) * 1000 / float(np.median(many))
    figures["disk_mib"] = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) / 2**20
    catalog.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures a collection with exact search.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options.rows, options.dimension, options.threads, options.searches)
    table = Table(title=f"{options.rows:,} x {options.dimension}, exact, {options.threads} thread(s)")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.2f}")
    Console().print(table)
    if options.json is not None:
        options.json.write_text(json.dumps({**vars(options), "json": str(options.json), **figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
