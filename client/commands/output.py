"""What commands print on stdout."""

from __future__ import annotations

import dataclasses
import json
import sys
from datetime import datetime
from typing import Any

from rich.table import Table

from twinlens.client.sources import Skipped
from twinlens.client.tables import stdout_console
from twinlens.printable import printable_json


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON document; result types are objects of their fields, times ISO 8601; `indent` None: on one line."""
    sys.stdout.write(printable_json(json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)) + "\n")
    sys.stdout.flush()


def print_table(table: Table) -> None:
    """A table; without a terminal as plain text, nothing folded."""
    stdout_console().print(table)
    sys.stdout.flush()


def count_of(count: int, one: str, many: str) -> str:
    """A count with its noun: "1 file", "1,200 files"."""
    return f"{count:,} {one if count == 1 else many}"


def passed_over(skipped: Skipped) -> str:
    """What a walk left out, as a line; empty where it left out nothing."""
    parts = []
    if skipped.files:
        parts.append(count_of(skipped.files, "file that is not a picture", "files that are not pictures"))
    if skipped.folders:
        parts.append(count_of(skipped.folders, "folder that cannot be opened", "folders that cannot be opened"))
    return f"passed over {' and '.join(parts)}" if parts else ""


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.repr}
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")
