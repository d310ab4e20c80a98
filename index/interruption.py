"""Long statements that end early: once nobody waits for their answer, or the collection is being closed."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from twinlens.index.errors import Abandoned, CollectionNotFound

_STEPS_BETWEEN_LOOKS = 10_000  # of SQLite's machine: about a millisecond
_abandoned: ContextVar[Callable[[], bool]] = ContextVar("abandoned", default=lambda: False)


@contextmanager
def abandonable(abandoned: Callable[[], bool]) -> Iterator[None]:
    """While the block lasts, this thread's long statements look whether somebody still waits for them.

    Args:
        abandoned: Whether nobody does; called often, and from this thread.
    """
    before = _abandoned.set(abandoned)
    try:
        yield
    finally:
        _abandoned.reset(before)


def is_abandoned() -> bool:
    """Whether nobody waits any more for what this thread does."""
    return _abandoned.get()()


@contextmanager
def interruptible(connection: sqlite3.Connection, closing: threading.Event, name: str) -> Iterator[None]:
    """Lets statements of a connection end early while the block lasts.

    Args:
        connection: For reading.
        closing: Set once the collection is to be closed.
        name: What to call it in errors.

    Raises:
        Abandoned: nobody waits for the answer any more.
        CollectionNotFound: the collection is being closed.
    """
    connection.set_progress_handler(lambda: closing.is_set() or is_abandoned(), _STEPS_BETWEEN_LOOKS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if closing.is_set():
            raise CollectionNotFound(f"{name} is being closed") from error
        if is_abandoned():
            raise Abandoned(f"{name}: nobody waits for the answer any more") from error
        raise
    finally:
        connection.set_progress_handler(None, 0)
