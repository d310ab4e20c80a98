"""Every kind of index on the device, against exact search and beside FAISS alone."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench.cuda.part import Order, Row, Skipped, run_part  # noqa: E402

_BATCH = 64
_TOLERANCE = 2e-6  # of a cosine in float32 against float64
_LEAST_RECALL = {"flat": 0.999, "hnsw": 0.9, "ivf_flat": 0.9, "ivf_pq": 0.9}


def measure(order: Order) -> Iterator[Row]:
    """A row a kind.

    Args:
        order: `device` (cuda or cpu), `rows`, `dimension`, `queries`, `seconds`.
    """
    import numpy as np  # noqa: PLC0415 - what is missing is reported, not raised

    from bench.engines.dataset import TOP_K, make_dataset, open_dataset  # noqa: PLC0415
    from bench.engines.recall import recall_at_k  # noqa: PLC0415
    from twinlens.encoders.cpus import allowed_cpus  # noqa: PLC0415
    from twinlens.index.faiss_library import import_faiss  # noqa: PLC0415
    from twinlens.index.kinds.device import Device, sees_gpu  # noqa: PLC0415
    from twinlens.index.kinds.kind import Kind  # noqa: PLC0415
    from twinlens.index.kinds.segment import open_segment, write_segment  # noqa: PLC0415
    from twinlens.index.search_threads import SearchThreads  # noqa: PLC0415

    _require_faiss()
    faiss = import_faiss()
    device = Device(order["device"])
    if device is Device.CUDA and not sees_gpu():
        raise Skipped(f"faiss {faiss.__version__} sees no GPU: it takes faiss-gpu")
    threads = SearchThreads(allowed_cpus())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_dataset(folder, order["rows"], order["dimension"], order["queries"])
        data = open_dataset(folder)
        vectors, queries = np.ascontiguousarray(data.vectors), np.ascontiguousarray(data.queries)
        exact = queries.astype(np.float64) @ vectors.T.astype(np.float64)
        for kind in (kind for kind in Kind if kind is not Kind.AUTO):
            place = folder / kind
            chunks = [(np.arange(len(vectors)), vectors)]
            write_segment(place, chunks, dimension=order["dimension"], kind=kind, threads=threads)
            main = open_segment(place, threads=threads, device=device)
            scores, keys = main.search(queries, TOP_K)
            recall = recall_at_k(keys.tolist(), data.nearest)
            off = float(np.abs(scores - np.take_along_axis(exact, keys, axis=1)).max())
            rate = _rate(lambda part, main=main: main.search(part, TOP_K), queries, order["seconds"])  # type: ignore[misc]
            bare = bare_index(faiss, kind.value, vectors, on_gpu=device is Device.CUDA)
            bare_recall = recall_at_k(bare(queries, TOP_K).tolist(), data.nearest)
            bare_rate = _rate(lambda part, bare=bare: bare(part, TOP_K), queries, order["seconds"])  # type: ignore[misc]
            main.close()
            held = recall >= _LEAST_RECALL[kind] and off <= _TOLERANCE
            check = f"recall@10 {recall:.3f} (bare {bare_recall:.3f}), scores off by {off:.0e}"
            what = f"{kind}, {len(vectors):,} vectors of {order['dimension']}"
            yield Row(what, "queries", rate, bare_rate, check, held)


def bare_index(faiss: Any, kind: str, vectors: Any, *, on_gpu: bool) -> Callable[[Any, int], Any]:
    """FAISS's index of that kind as its documentation makes it; returns what finds rows.

    On a GPU a graph is CAGRA's where FAISS has it; else every vector is compared.
    """
    count, dimension = vectors.shape
    lists = max(1, int(4 * count**0.5))
    inner = faiss.METRIC_INNER_PRODUCT
    if kind == "hnsw" and not on_gpu:
        index = faiss.IndexHNSWFlat(dimension, 32, inner)
        index.hnsw.efSearch = 64
    elif kind == "hnsw" and hasattr(faiss, "GpuIndexCagra"):
        resources = faiss.StandardGpuResources()
        index = faiss.GpuIndexCagra(resources, dimension, faiss.METRIC_L2, faiss.GpuIndexCagraConfig())
        index.train(vectors)
        return lambda queries, top_k, _=resources: index.search(queries, top_k)[1]  # type: ignore[misc]
    elif kind in {"ivf_flat", "ivf_pq"}:
        code = "Flat" if kind == "ivf_flat" else f"PQ{dimension // 8}"
        index = faiss.index_factory(dimension, f"IVF{lists},{code}", inner)
    else:
        index = faiss.IndexFlatIP(dimension)
    resources = None
    if on_gpu:
        resources = faiss.StandardGpuResources()
        options = faiss.GpuClonerOptions()
        options.useFloat16 = kind == "ivf_pq"
        index = faiss.index_cpu_to_gpu(resources, 0, index, options)
    if kind.startswith("ivf"):
        index.train(vectors)
        index.nprobe = 32
    index.add(vectors)
    return lambda queries, top_k, _=resources: index.search(queries, top_k)[1]  # type: ignore[misc]


def _rate(search: Callable[[Any], object], queries: Any, seconds: float) -> float:
    """Queries a second in batches of 64, one after the other."""
    parts = [queries[start : start + _BATCH] for start in range(0, len(queries) - _BATCH + 1, _BATCH)]
    search(parts[0])
    done = 0
    begun_s = time.perf_counter()
    while (taken_s := time.perf_counter() - begun_s) < seconds:
        search(parts[done % len(parts)])
        done += 1
    return done * _BATCH / taken_s


def _require_faiss() -> None:
    import faiss  # noqa: F401, PLC0415 - twinlens's own message would send people to the wrong extra here


if __name__ == "__main__":
    run_part(measure)
