"""Logging of a server process: one line a record on stderr."""

from __future__ import annotations

import logging

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging(level: str) -> None:
    """Sets up the root logger; called once by a command, never on import."""
    logging.basicConfig(level=level.upper(), format=FORMAT, force=True)
    # It tells of every build of itself that it does not find, in words that look like failures.
    logging.getLogger("faiss.loader").setLevel(max(logging.WARNING, logging.getLogger().level))
