"""Logging of a server process: one line a record on stderr, as text for people or as JSON for collectors of logs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

from twinlens.printable import printable, printable_json
from twinlens.server.core.call import current_call

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_NO_CALL = "-"


class _Printable(logging.Formatter):
    """Callers' ids and names never break a line or reach a terminal as commands; tracebacks keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name, as below
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


class _Json(logging.Formatter):
    """An object a line: time, level, logger, message; the call it belongs to; `fields` of the record; the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (request_id := current_call().request_id) != _NO_CALL:
            line["request_id"] = request_id
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False, default=str))


class _WithoutUnsent(logging.Filter):
    """Drops gRPC's traceback for each answer whose caller had hung up: no fault, and as many as callers like."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        return kind is None or kind.__name__ != "ExecuteBatchError"


_WITHOUT_UNSENT = _WithoutUnsent()


def configure_logging(level: str, log_format: Literal["text", "json"] = "text") -> None:
    """Sets up the loggers; called once by a command, never on import.

    Args:
        level: From which level on twinlens writes. Libraries write nothing below "info", where Pillow tells what is
            written in a picture, and those of object storage what they send.
        log_format: As text, or as JSON.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Printable(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    root = logging.getLogger()
    if root.level < logging.INFO:
        logging.getLogger("twinlens").setLevel(root.level)
        root.setLevel(logging.INFO)
    if log_format == "json":
        logging.captureWarnings(capture=True)  # otherwise they are lines that are no JSON
    # It tells of every build of itself that it does not find, in words that look like failures.
    logging.getLogger("faiss.loader").setLevel(max(logging.WARNING, root.level))
    logging.getLogger("grpc._cython.cygrpc").addFilter(_WITHOUT_UNSENT)
