"""The merges of one collection: which are due, which were asked for, and how they went."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlens.index.errors import CollectionError, CollectionNotFound, MergeStopped
from twinlens.index.generations import LoadedGeneration
from twinlens.index.item import Modality
from twinlens.index.stats import LastMerge
from twinlens.index.tree.merge import merge_tree, segment_kind
from twinlens.index.tree.policy import retry_s, wait_s

if TYPE_CHECKING:
    from twinlens.index.state import CollectionState

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Trouble:
    """What went wrong with the merges of one modality since the last one that ended well."""

    failures: int = 0
    retry_at_s: float = 0.0


class Merges:
    """What the maintenance thread does for one collection."""

    def __init__(self, state: CollectionState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._requests: list[Future[None]] = []  # guarded by the lock
        self._trouble = {modality: _Trouble() for modality in Modality}

    def request(self) -> Future[None]:
        """Asks for a merge of everything; what comes back is done when that is, or holds what went wrong."""
        request: Future[None] = Future()
        with self._lock:
            self._requests.append(request)
        self._state.engines.maintenance.wake(self)
        return request

    def cancel(self) -> None:
        """Lets nobody wait any more, because the collection is being closed."""
        for request in self._take_requests():
            request.set_exception(CollectionNotFound(f"{self._state.name} is no longer open"))

    def wait_s(self, now_s: float) -> float | None:
        """How long until there is something to do; None: not before something changes."""
        if self._requests:
            return 0.0
        loaded = self._state.loaded
        waits = () if loaded is None else (self._tree_wait_s(loaded, modality, now_s) for modality in loaded.trees)
        return min((wait for wait in waits if wait is not None), default=None)

    def run(self) -> None:
        """Merges what was asked for, or what is due."""
        requests = self._take_requests()
        try:
            with self._state.use():
                loaded = self._state.current()
                self._merge_all(loaded, forced=bool(requests))
        except BaseException as error:
            for request in requests:
                request.set_exception(error)
            if not isinstance(error, CollectionError):
                raise
        else:
            for request in requests:
                request.set_result(None)

    def _merge_all(self, loaded: LoadedGeneration, *, forced: bool) -> None:
        """Merges every modality, or those that are due; one that fails does not keep the others from it."""
        failure: CollectionError | None = None
        now_s = time.monotonic()
        for modality in loaded.trees:
            if forced or self._tree_wait_s(loaded, modality, now_s) == 0:
                try:
                    self._merge(loaded, modality, forced=forced)
                except MergeStopped:
                    raise
                except CollectionError as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    def _merge(self, loaded: LoadedGeneration, modality: Modality, *, forced: bool) -> None:
        tree, trouble, name = loaded.trees[modality], self._trouble[modality], self._state.name
        tree.merging = True
        begun_s = time.monotonic()
        try:
            merge_tree(self._state, loaded, modality, forced=forced)
        except MergeStopped as error:
            raise MergeStopped(f"{name}: {error}; the index before goes on serving") from error
        except Exception as error:
            reason = " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())[:300]
            tree.last_merge = LastMerge(tree.last_merge.ended_s, tree.last_merge.took_s, reason)
            trouble.failures += 1
            trouble.retry_at_s = time.monotonic() + retry_s(trouble.failures)
            log.warning("%s: merging %s vectors failed (%s); the index before goes on serving", name, modality, reason)
            raise CollectionError(f"{name}: merging failed ({reason}); the index before goes on serving") from error
        finally:
            tree.merging = False
        ended_s = time.monotonic()
        tree.merge_ended_s = ended_s
        tree.last_merge = LastMerge(time.time(), ended_s - begun_s)
        self._trouble[modality] = _Trouble()

    def _tree_wait_s(self, loaded: LoadedGeneration, modality: Modality, now_s: float) -> float | None:
        tree = loaded.trees[modality]
        numbers = tree.numbers()
        if numbers is None:
            return None
        kind = segment_kind(self._state, len(tree), tree.dimension)
        outgrown = numbers.merged > 0 and kind not in {numbers.kind, tree.asked}
        ended_s = tree.merge_ended_s
        due_s = wait_s(
            numbers,
            self._state.engines.options.least_merged,
            since_s=float("inf") if ended_s is None else now_s - ended_s,
            took_s=tree.last_merge.took_s,
            outgrown=outgrown,
        )
        return None if due_s is None else max(due_s, self._trouble[modality].retry_at_s - now_s)

    def _take_requests(self) -> list[Future[None]]:
        with self._lock:
            requests, self._requests = self._requests, []
        return requests
