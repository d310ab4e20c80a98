"""Checking stored pictures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from twinlens.index import store
from twinlens.index.errors import CollectionError, CollectionNotFound
from twinlens.index.operations import statements
from twinlens.index.operations.checks.few import Few
from twinlens.index.operations.steps import Finding, Progress
from twinlens.index.state import CollectionState

_BETWEEN_STEPS = 64
_PAGE = 1000
_LOOKS = 2
_BETWEEN_LOOKS_S = 0.2  # a writer removes pictures right after its commit


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
            for item_id, trouble in _trouble(state, digest):
                yield from few.found(item_id, f"{trouble}; store the item again with its picture")
            done += 1
            if done % _BETWEEN_STEPS == 0:
                yield Progress("pictures", done, max(done, total))
        after = digests[-1]
    yield Progress("pictures", done, max(done, total))
    yield from few.rest()


def _trouble(state: CollectionState, digest: str) -> list[tuple[str, str]]:
    """An item that has a picture, and what is wrong with the picture."""
    if not _complaint(state, digest):
        return []
    with state.use(), state.database.read() as connection:
        owners = statements.owners_of(connection, digest, 1)  # none where it was deleted just now
    # Read once more: it may have been stored again between the two looks.
    return [(item_id, trouble) for item_id in owners if (trouble := _complaint(state, digest))]


def _complaint(state: CollectionState, digest: str) -> str:
    try:
        with state.use():
            data = state.blobs.read(digest)
    except CollectionNotFound:
        raise
    except CollectionError as error:
        return str(error)
    return f"{state.name}: the stored picture {digest} is missing" if data is None else ""


def check_strangers(state: CollectionState) -> Iterator[Progress | Finding]:
    """Looks for files among the pictures that belong to no item.

    What a writer is about to name or to remove lies there for moments, too: so a file counts after several looks.
    """
    yield Progress("other files", 0, 0)
    files = state.blobs.files()
    suspects: list[Path] = []
    while page := list(itertools.islice(files, _PAGE)):
        suspects += _unnamed(state, page)
        yield Progress("other files", len(suspects), 0)
    for _ in range(_LOOKS if suspects else 0):
        if state.closing.wait(_BETWEEN_LOOKS_S):
            raise CollectionNotFound(f"{state.name} is being closed")
        pages = [suspects[start : start + _PAGE] for start in range(0, len(suspects), _PAGE)]
        suspects = [path for page in pages for path in _unnamed(state, page) if path.exists()]
    few = Few("pictures")
    for path in suspects:
        yield from few.found(path.name, f"{state.name}: the file {path.name} among its pictures is of no item")
    yield from few.rest()


def _unnamed(state: CollectionState, files: Sequence[Path]) -> list[Path]:
    """Those that no writer is about to name, and no row names."""
    with state.use():
        idle = {path.name: path for path in files if not state.blobs.is_pinned(path.name)}
        with state.database.read() as connection:
            return [idle[name] for name in store.unnamed_blobs(connection, idle)]
