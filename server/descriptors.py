"""Room for open files: each collection keeps a few, and each connection one."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

ENOUGH = 65_536
# Kept for collections, pictures and what else a process opens.
_KEPT = 512


def allow_many_files() -> None:
    """Raises this process's limit on open files as far as it may itself, up to `ENOUGH`.

    The usual limit of 1,024 is there for programs that use select(2), and is reached at about 200 collections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        log.warning("the limit on open files stays at %d", soft)


def most_connections() -> int:
    """How many connections leave files enough for everything else: a crowd of callers must not keep items from disk."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return ENOUGH
    return max(soft - _KEPT, soft // 2)
