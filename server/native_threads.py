"""Threads of the linear algebra under NumPy and FAISS."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from twinlens.server.core.thread_shares import thread_shares
from twinlens.server.settings import Settings

# OpenBLAS (in the wheels), MKL, BLIS, and OpenMP, which FAISS is built with.
_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS")


def bound_native_threads(settings: Settings, environment: MutableMapping[str, str] = os.environ) -> None:
    """Gives these libraries the share of searching, for they multiply queries or labels with stored vectors.

    By themselves they start a thread for every CPU they see, whatever the quota of the process. They read their
    variables once, when they are loaded: call this before NumPy is imported. What the user has set stays.
    """
    for name in _VARIABLES:
        environment.setdefault(name, str(thread_shares(settings).search))
