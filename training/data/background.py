"""Runs an iterator in a thread of its own, a few results ahead of whoever uses them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")
_LOOKS_S = 0.1


def in_background(results: Iterator[Result], *, ahead: int) -> Generator[Result, None, None]:
    """The same results in the same order; what the iterator raises is raised here, after all before it.

    Closing the generator ends the thread, and the iterator.

    Args:
        results: Used by the other thread alone.
        ahead: At most so many results wait.
    """
    waiting: queue.Queue[Result | _End] = queue.Queue(ahead)
    stop = threading.Event()

    def put(result: Result | _End) -> None:
        while not stop.is_set():
            with suppress(queue.Full):
                waiting.put(result, timeout=_LOOKS_S)
                return

    def run() -> None:
        error: BaseException | None = None
        try:
            for result in results:
                put(result)
                if stop.is_set():
                    break
        except BaseException as raised:  # it is raised where the results are used
            error = raised
        finally:
            close = getattr(results, "close", None)
            if close is not None:
                close()
            put(_End(error))

    # A daemon: a program that ends by an error elsewhere must not wait for it.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while not isinstance(result := waiting.get(), _End):
            yield result
        if result.error is not None:
            raise result.error
    finally:
        stop.set()
        thread.join()


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error
