"""The merges of one collection: which are due, which were asked for, and how they went."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

from twinlens.index.errors import CollectionError, CollectionNotFound, MergeStopped
from twinlens.index.generations import LoadedGeneration
from twinlens.index.item import Modality
from twinlens.index.stats import LastMerge
from twinlens.index.tree.merge import merge_tree, segment_kind
from twinlens.index.tree.policy import retry_s, wait_s
from twinlens.index.tree.tree_index import TreeIndex

if TYPE_CHECKING:
    from twinlens.index.state import CollectionState

log = logging.getLogger(__name__)


class Merges:
    """What the maintenance thread does for one collection."""

    def __init__(self, state: CollectionState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._requests: list[Future[None]] = []  # guarded by the lock
        self._failures = 0
        self._retry_at_s = 0.0

    def request(self) -> Future[None]:
        """Asks for a merge of everything; what comes back is done when that is, or holds what went wrong."""
        request: Future[None] = Future()
        with self._lock:
            self._requests.append(request)
        self._state.engines.maintenance.wake()
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
        waits = () if loaded is None else (self._tree_wait_s(loaded.trees[m], now_s) for m in loaded.trees)
        due = [wait for wait in waits if wait is not None]
        if not due:
            return None
        return max(min(due), self._retry_at_s - now_s)

    def run(self) -> None:
        """Merges what was asked for, or what is due."""
        requests = self._take_requests()
        try:
            with self._state.use():
                loaded = self._state.current()
                now_s = time.monotonic()
                for modality, tree in loaded.trees.items():
                    if requests or self._tree_wait_s(tree, now_s) == 0:
                        self._merge(loaded, modality, forced=bool(requests))
        except BaseException as error:
            for request in requests:
                request.set_exception(error)
            if not isinstance(error, CollectionError):
                raise
        else:
            for request in requests:
                request.set_result(None)

    def _merge(self, loaded: LoadedGeneration, modality: Modality, *, forced: bool) -> None:
        tree, name = loaded.trees[modality], self._state.name
        tree.merging = True
        begun_s = time.monotonic()
        try:
            merge_tree(self._state, loaded, modality, forced=forced)
        except MergeStopped as error:
            raise MergeStopped(f"{name}: {error}; the index before goes on serving") from error
        except Exception as error:
            reason = " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())[:300]
            tree.last_merge = LastMerge(tree.last_merge.ended_s, tree.last_merge.took_s, reason)
            self._failures += 1
            self._retry_at_s = time.monotonic() + retry_s(self._failures)
            log.warning("%s: merging %s vectors failed (%s); the index before goes on serving", name, modality, reason)
            raise CollectionError(f"{name}: merging failed ({reason}); the index before goes on serving") from error
        finally:
            tree.merging = False
        ended_s = time.monotonic()
        tree.merge_ended_s = ended_s
        tree.last_merge = LastMerge(time.time(), ended_s - begun_s)
        self._failures, self._retry_at_s = 0, 0.0

    def _tree_wait_s(self, tree: TreeIndex, now_s: float) -> float | None:
        numbers = tree.numbers()
        if numbers is None:
            return None
        kind = segment_kind(self._state, len(tree), tree.dimension)
        outgrown = numbers.merged > 0 and kind not in {numbers.kind, tree.asked}
        ended_s = tree.merge_ended_s
        return wait_s(
            numbers,
            self._state.engines.options.least_merged,
            since_s=float("inf") if ended_s is None else now_s - ended_s,
            took_s=tree.last_merge.took_s,
            outgrown=outgrown,
        )

    def _take_requests(self) -> list[Future[None]]:
        with self._lock:
            requests, self._requests = self._requests, []
        return requests
