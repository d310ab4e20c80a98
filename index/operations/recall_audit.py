"""Measuring in the background what share of the nearest the searches of callers find."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import CollectionError
from twinlens.index.item import Modality
from twinlens.index.protocol import VectorIndex, Vectors
from twinlens.index.stats import Recall

if TYPE_CHECKING:
    from twinlens.index.state import CollectionState

_TOP_K = 10
_EVERY = 16  # one of so many calls of `search` is looked at
_PENDING = 32
_WINDOW = 200  # the newest comparisons count
_RUN_S = 0.5
_LEAST_WAIT_S = 5.0
_SHARE = 0.01  # of the time of one thread
_TOLERANCE = 1e-6


@dataclass(slots=True)
class _Sample:
    """Of one modality: queries to compare yet, and of each that was compared what share was found."""

    pending: deque[NDArray[np.float32]] = field(default_factory=lambda: deque(maxlen=_PENDING))
    found: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    engine: object = None
    measured_s: float = 0.0


class RecallAudit:
    """Repeats a sample of the searches without approximation, one at a time, for a hundredth of one thread's time."""

    def __init__(self, state: CollectionState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._samples = {modality: _Sample() for modality in Modality}  # guarded by the lock
        self._calls = 0
        self._next_s = 0.0

    def notice(self, modality: Modality, queries: Vectors) -> None:
        """Tells of a search, shape (q, d), that somebody just made; of one in sixteen the first query is kept."""
        self._calls += 1  # unguarded: losing count does no harm
        if self._calls % _EVERY != 1 or not len(queries):
            return
        with self._lock:
            idle = not any(sample.pending for sample in self._samples.values())
            self._samples[modality].pending.append(queries[0].copy())
        if idle:
            self._state.engines.maintenance.wake(self)

    def recall(self, modality: Modality) -> Recall | None:
        """What was found out about the index in use; None before the first comparison."""
        with self._lock:
            sample = self._samples[modality]
            if not sample.found or sample.engine != self._in_use(modality):
                return None
            return Recall(float(np.mean(sample.found)), len(sample.found), sample.measured_s)

    def wait_s(self, now_s: float) -> float | None:
        """How long until there is something to do; None: not before the next search."""
        if not any(sample.pending for sample in self._samples.values()):
            return None
        return max(self._next_s - now_s, 0.0)

    def run(self) -> None:
        """Compares what is pending for at most half a second, or one query, if that takes longer."""
        begun_s = time.monotonic()
        try:
            while time.monotonic() < begun_s + _RUN_S and self._compare_next():
                pass
        except CollectionError:
            if not self._state.closing.is_set():
                raise
        finally:
            ended_s = time.monotonic()
            self._next_s = ended_s + max(_LEAST_WAIT_S, (ended_s - begun_s) / _SHARE)

    def _compare_next(self) -> bool:
        """Compares one query; False where there is none, or the collection is about to close."""
        with self._lock:
            modality = max(self._samples, key=lambda each: len(self._samples[each].pending))
            sample = self._samples[modality]
            if not sample.pending or self._state.closing.is_set():
                return False
            query = sample.pending.popleft()
        with self._state.use():
            loaded, in_use = self._state.current(), self._in_use(modality)
            engine = loaded.engines[modality]
            if len(query) != loaded.generation.dimension:  # of the space before
                return True
            share = _share_found(engine, query[np.newaxis])
        with self._lock:
            if sample.engine != in_use:
                sample.found.clear()
                sample.engine = in_use
            if share is not None:
                sample.found.append(share)
                sample.measured_s = time.time()
        return True

    def _in_use(self, modality: Modality) -> object:
        """Another value after every merge and every change of the generation."""
        loaded = self._state.loaded
        if loaded is None:
            return None
        tree = loaded.trees.get(modality)
        return (loaded.generation.number, "" if tree is None else tree.token)


def _share_found(engine: VectorIndex, query: Vectors) -> float | None:
    """What share of the ten nearest a search finds; one that ties with the last of them counts, too.

    A write between the two searches hardly ever concerns one of the ten.
    """
    found, _ = engine.search(query, _TOP_K)
    nearest, _ = engine.search(query, _TOP_K, exact=True)
    if not nearest.size:
        return None
    return float(np.count_nonzero(found >= nearest[:, -1:] - _TOLERANCE) / nearest.size)
