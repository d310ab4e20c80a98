"""The commands that talk to a server: `twinlens ingest | search | label | collections | health`."""

from __future__ import annotations

from twinlens.client.commands.collections import collections
from twinlens.client.commands.health import health
from twinlens.client.commands.ingest import ingest
from twinlens.client.commands.label import label
from twinlens.client.commands.search import search

__all__ = ["collections", "health", "ingest", "label", "search"]
