"""Structures that are FAISS indexes, by row number."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from twinlens.index.faiss_library import import_faiss
from twinlens.index.kinds.exact import Rows
from twinlens.index.kinds.kind import Kind
from twinlens.index.protocol import Vectors

_STEPS = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128),
    *(160, 192, 256, 384, 512, 768, 1024, 1536, 2048),
)


class FaissStructure:
    """A `Structure` that is an index of FAISS, built or read, and not changed any more."""

    most = sys.maxsize

    def __init__(self, kind: Kind, index: Any, parameters: dict[str, int]) -> None:
        """Takes over an index, from then on `index`.

        Args:
            kind: Which kind it makes a segment.
            index: An `IndexHNSW` or an `IndexIVF`.
            parameters: How it was built.
        """
        self._faiss = import_faiss()
        self.kind = kind
        self.parameters = parameters
        self.index = index
        self._settings: dict[int, Any] = {}
        self._graph = kind is Kind.HNSW
        if self._graph:
            self.steps = tuple(step for step in _STEPS if step >= 32)
        else:
            lists: int = index.nlist
            self.steps = (*(step for step in _STEPS if step < lists), lists)

    @property
    def count(self) -> int:
        """How many vectors are in it."""
        return int(self.index.ntotal)

    @property
    def dimension(self) -> int:
        """Of the vectors."""
        return int(self.index.d)

    def propose(self, queries: Vectors, wanted: int, effort: int) -> Rows:
        """See `Structure`."""
        settings = self._settings.get(effort)
        if settings is None:
            settings = self._settings[effort] = self._made_settings(effort)
        scores = np.empty((len(queries), wanted), dtype=np.float32)
        rows = np.empty((len(queries), wanted), dtype=np.int64)
        pointer = self._faiss.swig_ptr
        self.index.search_c(len(queries), pointer(queries), wanted, pointer(scores), pointer(rows), settings)
        return rows

    def _made_settings(self, effort: int) -> Any:
        if self._graph:
            return self._faiss.SearchParametersHNSW(efSearch=effort)
        return self._faiss.SearchParametersIVF(nprobe=min(effort, self.index.nlist))

    def cost(self, effort: int) -> int:
        """See `Structure`."""
        if self._graph:
            # Every step of the search looks at some neighbours, one here and one there; measured with 512 dimensions.
            return 8 * effort
        lists: int = self.index.nlist
        return lists + effort * (int(self.index.ntotal) // lists) // 4

    def save(self, path: Path) -> None:
        """Writes it to a file, for `read_structure`.

        Raises:
            OSError: the disk is full.
        """
        failures: list[OSError] = []
        with path.open("wb") as file:

            def write(piece: bytes) -> int:
                try:
                    return file.write(piece)
                except OSError as error:  # FAISS does not pass it on
                    failures.append(error)
                    return 0

            try:
                self._faiss.write_index(self.index, self._faiss.PyCallbackIOWriter(write))
            except RuntimeError:
                if not failures:
                    raise
            if failures:
                raise failures[0]


def read_structure(path: Path, kind: Kind, parameters: dict[str, int]) -> FaissStructure:
    """Reads what `save` wrote.

    Raises:
        RuntimeError: it is damaged.
    """
    return FaissStructure(kind, import_faiss().read_index(str(path)), parameters)
