"""Checking stored pictures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from twinlens.index import store
from twinlens.index.errors import CollectionError
from twinlens.index.operations import statements
from twinlens.index.operations.checks.few import Few
from twinlens.index.operations.steps import Finding, Progress
from twinlens.index.state import CollectionState

_BETWEEN_STEPS = 64
_PAGE = 1000


def check_pictures(state: CollectionState) -> Iterator[Progress | Finding]:
    """Reads every picture and compares it with its name, which is the hash of what was stored."""
    with state.use(), state.database.read() as connection:
        total = statements.count_blobs(connection)
    few, after, done = Few("pictures"), "", 0
    yield Progress("pictures", 0, total)
    while True:
        with state.use(), state.database.read() as connection:
            digests = statements.blobs_after(connection, after, _PAGE)
        if not digests:
            break
        for digest in digests:
            trouble = _trouble(state, digest)
            if trouble:
                with state.use(), state.database.read() as connection:
                    owners = statements.owners_of(connection, digest, 1)  # none where it was deleted just now
                for item_id in owners:
                    yield from few.found(item_id, f"{trouble}; store the item again with its picture")
            done += 1
            if done % _BETWEEN_STEPS == 0:
                yield Progress("pictures", done, max(done, total))
        after = digests[-1]
    yield Progress("pictures", done, max(done, total))
    yield from few.rest()


def _trouble(state: CollectionState, digest: str) -> str:
    try:
        with state.use():
            data = state.blobs.read(digest)
    except CollectionError as error:
        with state.use():  # if it was closed instead, this says so
            return str(error)
    return f"{state.name}: the stored picture {digest} is missing" if data is None else ""


def check_strangers(state: CollectionState) -> Iterator[Progress | Finding]:
    """Looks for files among the pictures that belong to no item.

    A file is looked at twice, at the beginning and at the end: what is written or removed meanwhile is none.
    """
    yield Progress("other files", 0, 0)
    files = state.blobs.files()
    suspects: list[Path] = []
    while page := list(itertools.islice(files, _PAGE)):
        suspects += _unnamed(state, page)
        yield Progress("other files", len(suspects), 0)
    few = Few("pictures")
    for start in range(0, len(suspects), _PAGE):
        for path in _unnamed(state, suspects[start : start + _PAGE]):
            if path.exists():
                yield from few.found(path.name, f"{state.name}: the file {path.name} among its pictures is of no item")
    yield from few.rest()


def _unnamed(state: CollectionState, files: Sequence[Path]) -> list[Path]:
    """Those that no writer is about to name, and no row names."""
    with state.use():
        idle = {path.name: path for path in files if not state.blobs.is_pinned(path.name)}
        with state.database.read() as connection:
            return [idle[name] for name in store.unnamed_blobs(connection, idle)]
