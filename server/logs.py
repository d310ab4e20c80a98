"""Logging of a server process: one line a record on stderr."""

from __future__ import annotations

import logging
import sys
from typing import Any

from twinlens.printable import printable

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Printable(logging.Formatter):
    """Callers' ids and names never break a line or reach a terminal as commands; tracebacks keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name, as below
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


def configure_logging(level: str) -> None:
    """Sets up the root logger; called once by a command, never on import."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Printable(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # It tells of every build of itself that it does not find, in words that look like failures.
    logging.getLogger("faiss.loader").setLevel(max(logging.WARNING, logging.getLogger().level))
