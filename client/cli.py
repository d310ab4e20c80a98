"""The commands that talk to a server: `twinlens ingest | search | label | labelsets | collections | health`."""

from __future__ import annotations

from twinlens.client.commands.backups import backup, backups, restore
from twinlens.client.commands.collection_operations import check, duplicates, generations, index, merge
from twinlens.client.commands.collections import collections
from twinlens.client.commands.health import health
from twinlens.client.commands.ingest import ingest
from twinlens.client.commands.label import label
from twinlens.client.commands.label_sets import label_sets
from twinlens.client.commands.search import search
from twinlens.client.commands.transfer import export, import_

for _command in (merge, check, duplicates, generations, index, backup, restore, backups, export, import_):
    collections.command(_command.__name__.rstrip("_"))(_command)

__all__ = ["collections", "health", "ingest", "label", "label_sets", "search"]
