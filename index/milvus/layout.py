"""What a collection's parts are called in Milvus.

twinlens__photos__items               its items
twinlens__photos__g<number>__image    the image vectors of a generation
twinlens__photos__g<number>__text     its text vectors
twinlens__photos__g<number>__done     which items it has dealt with, and what space it is of
twinlens__photos__active              an alias of the active generation's `done`; with it the collection exists
"""

from __future__ import annotations

import hashlib
import re

from twinlens.index.item import Modality

# Milvus allows letters, digits and underscores; ids have hyphens as well. No underscore that follows another is
# written, so that `__` separates.
_WRITTEN = {"_": "_u", "-": "_h"}
_ACTIVE = re.compile(r"twinlens__((?:[a-z0-9]|_[uh])+)__active")
_DONE = re.compile(r"twinlens__(?:[a-z0-9]|_[uh])+__g(\d+)__done")


class Layout:
    """The names of one collection's parts."""

    def __init__(self, collection_id: str) -> None:
        """Takes the collection's id."""
        written = "".join(_WRITTEN.get(character, character) for character in collection_id)
        self._prefix = f"twinlens__{written}__"
        self.items = f"{self._prefix}items"
        self.active = f"{self._prefix}active"

    def vectors(self, generation: int, modality: Modality) -> str:
        """Of one modality of a generation."""
        return f"{self._prefix}g{generation}__{modality}"

    def done(self, generation: int) -> str:
        """What a generation has dealt with."""
        return f"{self._prefix}g{generation}__done"

    def of_generation(self, generation: int) -> list[str]:
        """All parts of a generation; the one by which it is there comes last."""
        return [*(self.vectors(generation, modality) for modality in Modality), self.done(generation)]

    def mine(self, name: str) -> bool:
        """Whether a name is that of a part of this collection."""
        return name.startswith(self._prefix)


def generation_of(done: str) -> int | None:
    """The number of the generation whose `done` has this name."""
    found = _DONE.fullmatch(done)
    return None if found is None else int(found[1])


def collection_of(alias: str) -> str | None:
    """The id of the collection whose `active` has this name."""
    found = _ACTIVE.fullmatch(alias)
    if found is None:
        return None
    return found[1].replace("_h", "-").replace("_u", "_")


def generation_number(space_id: str) -> int:
    """The number of the generation of a space: the same on every server, so that they never make two of it."""
    return int.from_bytes(hashlib.sha256(space_id.encode()).digest()[:6])
