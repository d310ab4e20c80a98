"""How long hosts made one call wait in vain."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from twinlens.server.core.fetching.errors import Fetched, NotFetched

_IN_VAIN = frozenset({Fetched.UNREACHABLE, Fetched.TIMEOUT})


class LostTime:
    """Of one call: hosts that do not answer are left alone after a while, so that it ends whatever it names.

    What fails quickly costs nothing, and is tried each time.

    Args:
        most_s: A host that cost the call so much is not asked again, all its fetches taken together.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._lost_s: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def counted(self, host: str) -> Iterator[None]:
        """Counts what the block waits for a host, where nothing comes of it.

        Raises:
            NotFetched: the host is not to be asked again; the block is not run.
        """
        if self._lost_s[host] >= self._most_s:
            raise NotFetched(
                f"{host} let this call wait in vain for others of its pictures and is left alone", Fetched.UNREACHABLE
            )
        began_s = time.monotonic()
        try:
            yield
        except NotFetched as error:
            if error.outcome in _IN_VAIN:
                self._lost_s[host] += time.monotonic() - began_s
            raise
