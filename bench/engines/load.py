"""Searches by several threads at once, and what a process keeps in memory."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.engines.contender import Search
from bench.engines.dataset import TOP_K


def under_load(search: Search, queries: NDArray[np.float32], callers: int, seconds: float) -> dict[str, float]:
    """Lets so many threads search for one query at a time.

    Returns:
        Queries a second, and the 50th and 99th percentile of a search, in milliseconds.
    """
    turn = itertools.count()
    taken_ms: list[list[float]] = [[] for _ in range(callers)]
    errors: list[BaseException] = []
    begin = threading.Barrier(callers + 1)

    def call(own: list[float]) -> None:
        begin.wait()
        end = time.perf_counter() + seconds
        try:
            while (start := time.perf_counter()) < end:
                query = queries[next(turn) % len(queries)]
                search(query[None], TOP_K)
                own.append((time.perf_counter() - start) * 1000)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(own,)) for own in taken_ms]
    for thread in threads:
        thread.start()
    begin.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - start
    if errors:
        raise errors[0]
    every = np.array(list(itertools.chain.from_iterable(taken_ms)))
    p50, p99 = np.percentile(every, [50, 99]).tolist()
    return {"per_s": len(every) / elapsed, "p50_ms": p50, "p99_ms": p99}


def memory_mib() -> dict[str, float]:
    """Resident MiB: `own` is the process's alone, `mapped` are pages of files that the system may drop at any time."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {"own": int(fields["RssAnon"].split()[0]) / 1024, "mapped": int(fields["RssFile"].split()[0]) / 1024}


def disk_mib(folder: Path) -> float:
    """What the files below a folder take."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
