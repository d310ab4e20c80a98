"""One measurement in a process of its own: `-m bench.engines.measure STEP CONTENDER FOLDER DATA KIND OPTIONS`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.engines.contender import Contender, contender
from bench.engines.dataset import TOP_K, Condition, Dataset, exact_nearest, open_dataset
from bench.engines.load import disk_mib, memory_mib, under_load
from bench.engines.recall import recall_at_k
from bench.peak_memory import highest_mib

SHARES = (0.5, 0.05, 0.002, 0.0)
_BATCH = 64
_PATIENCE_S = 60.0  # with a slow contender fewer queries must do

Answer = TypeVar("Answer")


def store(of: Contender, data: Dataset) -> dict[str, Any]:
    """Brings the vectors to disk."""
    start = time.perf_counter()
    if not of.store(data):
        return {}
    return {"upsert_per_s": len(data.vectors) / (time.perf_counter() - start)}


def build(of: Contender, data: Dataset, kind: str) -> dict[str, Any]:
    """Builds what is searched."""
    start = time.perf_counter()
    of.build(data, kind)
    return {"build_s": time.perf_counter() - start, "build_peak_mib": highest_mib()}


def search(of: Contender, data: Dataset, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Opens what was built, in a process that has seen nothing of it, and searches."""
    before = memory_mib()
    start = time.perf_counter()
    of.open(options["threads"])
    searches = of.searches()
    first = next(iter(searches.values()))
    first(data.queries[:1], TOP_K)
    figures: dict[str, Any] = {"restart_s": time.perf_counter() - start, "disk_mib": disk_mib(folder)}
    of.tune(data, options["recall"])
    figures["by"] = {}
    for name, find in searches.items():
        found = _within(_PATIENCE_S, (find(query[None], TOP_K)[0] for query in data.queries))
        if "memory_mib_per_million" not in figures:  # before many threads leave their buffers behind
            after = memory_mib()
            millions = len(data.vectors) / 1e6
            figures["memory_mib_per_million"] = {part: (after[part] - before[part]) / millions for part in after}
        own: dict[str, Any] = {"recall": recall_at_k(found, data.nearest[: len(found)])}
        for callers in options["callers"]:
            own[f"callers_{callers}"] = under_load(find, data.queries, callers, options["seconds"])
        own["batch_per_s"] = _batches_per_s(find, data.queries)
        figures["by"][name] = own
    return figures


def _within(seconds: float, answers: Iterable[Answer]) -> list[Answer]:
    """As many of them as come in time."""
    end = time.perf_counter() + seconds
    done = []
    for answer in answers:
        done.append(answer)
        if time.perf_counter() > end:
            break
    return done


def _batches_per_s(find: Any, queries: NDArray[np.float32]) -> float:
    batch = np.resize(queries, (_BATCH, queries.shape[1]))
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        find(batch, TOP_K)
        taken.append(time.perf_counter() - start)
    return float(_BATCH / np.median(taken))


def filtered(of: Contender, data: Dataset, options: dict[str, Any]) -> dict[str, Any]:
    """Searches under filters, beside NumPy over the rows that match."""
    of.open(options["threads"])
    rows = len(data.vectors)
    conditions = {f"{share:.1%}": Condition("draw", round(rows * share)) for share in SHARES}
    # The cluster whose points are the farthest from each query: what it looks at first, the filter hides.
    conditions["one far cluster"] = Condition("cluster", -1)
    matrix = np.array(data.vectors)
    queries = data.queries[: options["filtered"]]
    centres = np.stack([matrix[data.cluster == c].mean(axis=0) for c in range(int(data.cluster.max()) + 1)])
    figures: dict[str, Any] = {}
    for name, condition in conditions.items():
        found = _under_filter(of, data, matrix, centres, queries, condition)
        if found is None:
            return {}
        figures[name] = found
    return figures


def _under_filter(
    of: Contender,
    data: Dataset,
    matrix: NDArray[np.float32],
    centres: NDArray[np.float32],
    queries: NDArray[np.float32],
    condition: Condition,
) -> dict[str, Any] | None:
    """One condition; for a far cluster, it is another one for every query."""
    recalls: list[float] = []
    ours_ms: list[float] = []
    brute_ms: list[float] = []
    matching: list[int] = []
    missing = 0
    candidates = matrix[:0]
    end = time.perf_counter() + _PATIENCE_S / 2
    for query in queries:
        asked = Condition("cluster", int(np.argmin(centres @ query))) if condition.field == "cluster" else condition
        allowed = data.rows_where(asked)
        if not matching or condition.field == "cluster":
            candidates = matrix[allowed]
        start = time.perf_counter()
        best = allowed[exact_nearest(candidates, query[None], TOP_K)[0]]
        brute_ms.append((time.perf_counter() - start) * 1000)
        start = time.perf_counter()
        hits = of.search_where(query, TOP_K, asked)
        ours_ms.append((time.perf_counter() - start) * 1000)
        if hits is None:
            return None
        recalls.append(recall_at_k([hits], best[None]))
        missing += len(best) - len(set(hits))
        matching.append(len(allowed))
        if time.perf_counter() > end:
            break
    return {
        "recall": float(np.mean(recalls)),
        "missing": missing,
        "p50_ms": float(np.median(ours_ms)),
        "brute_ms": float(np.median(brute_ms)),
        "matching": float(np.mean(matching)),
    }


def main() -> None:
    step, name, folder_name, data_name, kind, options_text = sys.argv[1:]
    folder, data = Path(folder_name), open_dataset(Path(data_name))
    options = json.loads(options_text)
    of = contender(name, folder)
    try:
        match step:
            case "store":
                figures = store(of, data)
            case "build":
                figures = build(of, data, kind)
            case "search":
                figures = search(of, data, folder, options)
            case _:
                figures = filtered(of, data, options)
    finally:
        of.close()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
