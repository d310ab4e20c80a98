"""The commands that talk to a server: `twinlens ingest | search | label | collections | health`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from twinlens.client.commands.collections import collections
from twinlens.client.commands.health import health
from twinlens.client.commands.ingest import ingest
from twinlens.client.commands.label import label
from twinlens.client.commands.search import search

__all__ = ["COMMANDS", "collections", "health", "ingest", "label", "search"]

COMMANDS: dict[str, typer.Typer | Callable[..., Any]] = {
    "ingest": ingest,
    "search": search,
    "label": label,
    "collections": collections,
    "health": health,
}
