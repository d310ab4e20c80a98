"""`twinlens ingest`: a folder or a .jsonl file into a collection."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from twinlens.client.client import Client
from twinlens.client.commands.options import AsJson, Bundle, CollectionName, Local, Server
from twinlens.client.commands.output import count_of, passed_over, print_json
from twinlens.client.connect import connect
from twinlens.client.errors import TwinlensError
from twinlens.client.ingest import IngestReport
from twinlens.client.ingest import ingest as store_rows
from twinlens.client.progress import print_line, progress, stderr_console
from twinlens.client.sources import Skipped, read_source


def ingest(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder, read recursively, or a .jsonl file whose rows have `image` (a path relative to the file), "
            "`caption` (or `text`), or both, and optionally `id`, `uri`, `metadata`; other keys become metadata.",
        ),
    ],
    collection: CollectionName,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    force: Annotated[
        bool, typer.Option("--force", help="Store again what is there unchanged, too. Default: pass over it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Store the pictures of SOURCE in a collection, which is created if it is missing.

    Ids are the paths below the folder, or the ids given; of rows that share an id the last stays, so several captions
    of one picture need an `id` each. To run it again is safe: items of a known id are replaced, unchanged ones passed
    over. Items whose pictures are gone stay (see `twinlens collections remove`). Items that fail are listed; the exit
    code is 0 if at least one is stored, or was.
    """
    skipped = Skipped()
    rows = read_source(source, skipped)
    first = next(rows, None)
    if first is None:
        raise TwinlensError("NOT_FOUND", f"no pictures in {source}" if source.is_dir() else f"no rows in {source}")
    with connect(server, local, bundle, create=True) as client:
        created, stored_before = _ensure(client, collection)
        with progress("stored", lambda: sum(1 for _ in read_source(source))) as shown:
            report = store_rows(
                client, collection, chain([first], rows), compare=stored_before > 0 and not force, shown=shown
            )
        useless = not report.stored and not report.unchanged
        if useless and created:
            client.delete_collection(collection)  # as if nothing had been tried
        held = 0 if useless else client.get_collection(collection).item_count
    if as_json:
        fields = {name: getattr(report, name) for name in ("stored", "unchanged", "failed", "truncated")}
        print_json(
            {
                "collection": collection,
                "created": created,
                **fields,
                "items": held,
                "skipped_files": skipped.files,
                "failures": report.failures,
            }
        )
    if useless:
        raise TwinlensError("INVALID_ARGUMENT", f"nothing was stored in {collection}: all {report.failed} items failed")
    if not as_json:
        typer.echo(_summary(collection, report, created, held))
    if left_out := passed_over(skipped):
        print_line(stderr_console(), left_out)


def _ensure(client: Client, collection: str) -> tuple[bool, int]:
    """Creates a collection that is missing; says whether it did, and how many items there are."""
    try:
        return False, client.get_collection(collection).item_count
    except TwinlensError as error:
        if error.code != "NOT_FOUND":
            raise
    try:
        client.create_collection(collection)
    except TwinlensError as error:
        if error.code != "ALREADY_EXISTS":  # someone else was quicker
            raise
        return False, client.get_collection(collection).item_count
    return True, 0


def _summary(collection: str, report: IngestReport, created: bool, held: int) -> str:
    shared = held < report.stored + report.unchanged  # ids: more rows were stored than there are items
    parts = [f"{count_of(report.stored, 'row', 'rows')} stored" if shared else f"{report.stored:,} stored"]
    if report.unchanged:
        parts.append(f"{report.unchanged:,} unchanged")
    if report.failed:
        parts.append(f"{report.failed:,} failed")
    if report.truncated:
        parts.append(f"{report.truncated:,} captions longer than the model reads")
    if shared:
        items = count_of(held, "item", "items")
        parts.append(f"{items} in all: rows that share an id replace each other, so give each an `id` to keep it")
    return f"{collection}{' (new)' if created else ''}: {', '.join(parts)}"
