from __future__ import annotations

import threading

import numpy as np
import pytest

from twinlens.index.flat import FlatIndex
from twinlens.index.search_threads import SearchThreads

faiss = pytest.importorskip("faiss")


def test_a_large_search_takes_what_is_free_and_a_small_one_a_single_thread() -> None:
    threads = SearchThreads(4)
    with threads.take() as small:
        seen: list[int] = []

        def search() -> None:
            with threads.take(64) as large:
                seen.extend((large, faiss.omp_get_max_threads()))

        other = threading.Thread(target=search)
        other.start()
        other.join()
        assert (small, faiss.omp_get_max_threads()) == (1, 1)
    assert seen == [3, 3]


def test_a_search_waits_for_a_free_thread() -> None:
    threads = SearchThreads(2)
    begun = threading.Event()

    def search() -> None:
        with threads.take():
            begun.set()

    other = threading.Thread(target=search)
    with threads.take(2):
        other.start()
        assert not begun.wait(0.05)
    assert begun.wait(30)
    other.join()


def test_many_searches_never_use_more_than_the_budget() -> None:
    threads = SearchThreads(3)
    used, most, lock = 0, 0, threading.Lock()

    def search(wanted: int) -> None:
        nonlocal used, most
        for _ in range(50):
            with threads.take(wanted) as got:
                with lock:
                    used += got
                    most = max(most, used)
                with lock:
                    used -= got

    running = [threading.Thread(target=search, args=(1 + i % 4,)) for i in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert 1 <= most <= 3
    with threads.take(9) as got:
        assert got == 3  # all were given back


def test_the_thread_count_is_set_in_the_thread_that_searches() -> None:
    index = FlatIndex(2, threads=SearchThreads(1))
    index.upsert(np.array([1]), np.eye(2, dtype=np.float32)[:1])
    seen = []

    def search() -> None:
        faiss.omp_set_num_threads(2)
        index.search(np.eye(2, dtype=np.float32), 1)
        seen.append(faiss.omp_get_max_threads())

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert seen == [1]


def test_a_failed_search_gives_its_threads_back() -> None:
    threads = SearchThreads(1)
    with pytest.raises(ZeroDivisionError), threads.take():
        raise ZeroDivisionError
    with threads.take() as got:
        assert got == 1
