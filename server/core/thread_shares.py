"""Who may use how many of the CPUs at a time."""

from __future__ import annotations

from typing import NamedTuple

from twinlens.encoders.cpus import allowed_cpus
from twinlens.server.settings import Settings

# Fewer CPUs are not divided: a quarter of them is none.
_DIVISIBLE = 4


class ThreadShares(NamedTuple):
    """How many threads each kind of work may use at a time."""

    prepare: int
    encode: int
    search: int


def thread_shares(settings: Settings) -> ThreadShares:
    """Divides the CPUs this process may use: decoding and tokenising, the towers (in turns), FAISS (one search a time).

    A quarter prepares: decoding a photo costs about a third of what a small tower takes for it. Each kind has at least
    one thread, so with fewer than 8 CPUs there is one thread too many while a search runs, rather than one too few for
    the towers at all other times. Up to three CPUs cannot be divided so: decoding photos for a tower the size of
    ViT-B/32 takes a tenth of two, and half of them would be left idle for most of the time. There the towers have a
    thread a CPU, and the system shares the CPUs out between these and the one that decodes.
    """
    cpus = allowed_cpus()
    prepare = settings.prepare_threads or max(1, cpus // 4)
    search = settings.search_threads or max(1, cpus // 8)
    encode = settings.encode_threads or (cpus if cpus < _DIVISIBLE else cpus - prepare - cpus // 8)
    return ThreadShares(prepare, encode, search)
