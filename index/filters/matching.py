"""Which items match: their keys, remembered from one search to the next."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from twinlens.index.filters.conditions import Sql
from twinlens.index.protocol import Keys

_REMEMBERED = 64  # filters
_REMEMBERED_BYTES = 64 * 2**20  # of keys, all filters together
_LOGGED = 50_000  # keys of items changed; whoever is further behind asks about every item again


@dataclass(frozen=True, slots=True)
class _Answer:
    """Keys that matched, ascending, once so many changes of items were logged."""

    through: int
    keys: Keys


class Matching:
    """Keys of matching items. An answer is brought up to date by asking only about the items changed since."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[Sql, _Answer] = OrderedDict()
        self._log: deque[tuple[int, list[int]]] = deque()
        self._logged = 0  # keys in the log
        self._through = 0  # changes there were
        self._known_from = 0  # the log has all changes after this one

    def note(self, keys: Iterable[int]) -> None:
        """Notes that these items were stored, replaced or deleted: after the commit, before the write returns."""
        changed = list(keys)
        with self._lock:
            self._through += 1
            self._log.append((self._through, changed))
            self._logged += len(changed)
            while self._logged > _LOGGED:
                self._known_from, dropped = self._log.popleft()
                self._logged -= len(dropped)

    def now(self) -> int:
        """How many changes were noted: to be asked before the moment is fixed at which a connection reads."""
        with self._lock:
            return self._through

    def keys(self, connection: sqlite3.Connection, through: int, where: Sql, where_by_key: Sql) -> Keys:
        """Ascending keys of all items that match.

        Args:
            connection: For reading.
            through: What `now` said before `connection` began to read: it sees all these changes, and perhaps more.
            where: The condition.
            where_by_key: The same without use of indexes, for asking about items whose keys are known.
        """
        with self._lock:
            answer = self._answers.get(where)
            changed: set[int] | None = None
            if answer is not None and answer.through >= self._known_from:
                changed = {key for number, keys in self._log if number > answer.through for key in keys}
        if answer is not None and changed is not None:
            if not changed:
                keys = answer.keys
            else:
                asked = np.array(sorted(changed), dtype=np.int64)
                kept = answer.keys[asked[np.searchsorted(asked, answer.keys) % len(asked)] != answer.keys]
                found = _matching_among(connection, where_by_key, asked)
                keys = np.insert(kept, np.searchsorted(kept, found), found)
        else:
            keys = _matching(connection, where)
        self._remember(where, _Answer(through, keys))
        return keys

    def _remember(self, where: Sql, answer: _Answer) -> None:
        if answer.keys.nbytes > _REMEMBERED_BYTES:
            return  # it would push out all others, and then itself
        with self._lock:
            self._answers[where] = answer
            self._answers.move_to_end(where)
            while len(self._answers) > _REMEMBERED or self._bytes() > _REMEMBERED_BYTES:
                self._answers.popitem(last=False)

    def _bytes(self) -> int:
        return sum(answer.keys.nbytes for answer in self._answers.values())


def _matching(connection: sqlite3.Connection, where: Sql) -> Keys:
    rows = connection.execute(f"SELECT key FROM items WHERE {where.text}", where.parameters)  # noqa: S608 - see Sql
    keys = np.fromiter((key for (key,) in rows), dtype=np.int64)
    keys.sort()
    return keys


def _matching_among(connection: sqlite3.Connection, where: Sql, keys: Keys) -> Keys:
    among = Sql("key IN (SELECT value FROM json_each(?))", (json.dumps(keys.tolist()),))
    return _matching(connection, Sql(f"{among.text} AND {where.text}", among.parameters + where.parameters))
