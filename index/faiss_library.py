"""FAISS, loaded where it is first needed."""

from __future__ import annotations

import importlib
from typing import Any

from twinlens.index.errors import EngineUnavailable


def import_faiss() -> Any:
    """The package `faiss`, of whichever build is installed.

    Raises:
        EngineUnavailable: none is.
    """
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise EngineUnavailable(
            "FAISS is not installed: install twinlens with an engine, as in pip install 'twinlens[cpu]'",
        ) from error
