"""Removing segments that do not count."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from twinlens.index.database import Database
from twinlens.index.errors import CollectionError
from twinlens.index.generations import LoadedGeneration
from twinlens.index.tree.segment_rows import all_tokens, forget_others, forget_segment


def tidy_segments(database: Database, folder: Path, loaded: LoadedGeneration) -> None:
    """Forgets the rows that name no usable segment, and removes the folders that no row names.

    Whatever a crash or damage left behind goes here. Trouble with the disk only means that it stays.

    Args:
        database: Where the rows are; nobody else may write to it.
        folder: Where the segments lie.
        loaded: The active generation, as it was opened.
    """
    used = {tree.token for tree in loaded.trees.values() if tree.token}
    with suppress(CollectionError):
        with database.read() as connection:
            stale = all_tokens(connection) != used
        if stale:
            with database.write() as connection:
                forget_others(connection, loaded.generation.number)
                for modality, tree in loaded.trees.items():
                    if not tree.token:
                        forget_segment(connection, loaded.generation.number, modality)
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name not in used:
                discard_folder(folder, path.name)


def discard_folder(folder: Path, token: str) -> None:
    """Removes the files of a segment, if there are any; searches that have them open are not disturbed."""
    if token:
        shutil.rmtree(folder / token, ignore_errors=True)
