from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from twinlens.index.rwlock import ReadWriteLock


def test_readers_share() -> None:
    lock = ReadWriteLock()
    both_inside = threading.Barrier(2, timeout=10)

    def read() -> None:
        with lock.read():
            both_inside.wait()

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(read), pool.submit(read)]:
            future.result()


def test_a_writer_is_alone() -> None:
    lock = ReadWriteLock()
    inside = {"readers": 0, "writers": 0}
    guard = threading.Lock()

    def change(kind: str, by: int) -> None:
        with guard:
            inside[kind] += by

    def read() -> None:
        for _ in range(300):
            with lock.read():
                change("readers", 1)
                assert inside["writers"] == 0
                change("readers", -1)

    def write() -> None:
        for _ in range(300):
            with lock.write():
                change("writers", 1)
                assert inside == {"readers": 0, "writers": 1}
                change("writers", -1)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work) for work in (read, read, write, write)]:
            future.result()


def test_a_waiting_writer_comes_before_readers_that_arrive_later() -> None:
    lock = ReadWriteLock()
    order: list[str] = []
    pause = threading.Event()

    def write() -> None:
        with lock.write():
            order.append("writer")

    def read() -> None:
        with lock.read():
            order.append("reader")

    with ThreadPoolExecutor(2) as pool:
        with lock.read():
            first = pool.submit(write)
            while not lock._writers_waiting:
                pause.wait(0.001)
            second = pool.submit(read)
        first.result()
        second.result()
    assert order == ["writer", "reader"]


def test_an_error_inside_lets_go() -> None:
    lock = ReadWriteLock()
    for side in (lock.read, lock.write):
        with pytest.raises(ZeroDivisionError), side():
            1 / 0  # noqa: B018
    with lock.write():
        pass
