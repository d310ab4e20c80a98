"""`twinlens collections backup`, `restore` and `backups`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from twinlens.client.collection_tables import backup_table, size_of
from twinlens.client.commands.options import AsJson, Bundle, Local, Name, Server
from twinlens.client.commands.output import count_of, print_json, print_table
from twinlens.client.connect import connect
from twinlens.client.errors import TwinlensError
from twinlens.client.progress import print_line, stderr_console, step_progress
from twinlens.printable import printable

_PLACE = (
    "a folder or an address on object storage (s3://…). Goes with --local; a server has its own (TWINLENS_BACKUPS)."
)
From = Annotated[str | None, typer.Option("--from", metavar="PLACE", help=f"Where backups are kept: {_PLACE}")]


_VARIABLE = "TWINLENS_BACKUPS"


def _check_place(local: Path | None, given: str | None, option: str) -> None:
    """Where no server runs that has a place of its own, one must be named."""
    if local is not None and given is None and not os.environ.get(_VARIABLE):
        raise typer.BadParameter(f"say where backups are kept: {option} PLACE, or {_VARIABLE}")


def backup(
    name: Name,
    backup_id: Annotated[
        str, typer.Argument(metavar="[BACKUP]", help="What to call it. Default: the collection's id and the time.")
    ] = "",
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help=f"Where to keep it: {_PLACE}")] = None,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: AsJson = False,
) -> None:
    """Back a collection up: items, vectors and pictures, while it is served.

    Pictures that another backup at that place holds already are not copied again. An interrupted backup is none.
    """
    _check_place(local, to, "--to")
    with connect(server, local, bundle, backups=to) as client, step_progress() as shown:
        made = client.backup_collection(name, backup_id, progress=shown)
    if as_json:
        print_json(made)
    else:
        items = count_of(made.item_count, "item", "items")
        typer.echo(f"backed up {name} as {made.id} ({items}, {size_of(made.total_bytes)})")
    if made.missing_image_count:
        lost = count_of(made.missing_image_count, "picture was", "pictures were")
        print_line(stderr_console(), f"{lost} lost or damaged already: `twinlens collections check {name}` names them")


def restore(
    backup_id: Annotated[str, typer.Argument(metavar="BACKUP", help="The backup's id.")],
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="What to call the collection. Default: as the one backed up.")
    ] = "",
    from_: From = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put it in the place of a collection of that id, damaged or not.")
    ] = False,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: AsJson = False,
) -> None:
    """Make a collection of a backup. All of it is verified before the collection appears."""
    _check_place(local, from_, "--from")
    with connect(server, local, bundle, create=True, backups=from_) as client, step_progress() as shown:
        made = client.restore_collection(backup_id, collection=name, replace=replace, progress=shown)
    if as_json:
        print_json(made)
    else:
        typer.echo(f"restored {made.id} from {backup_id} ({count_of(made.item_count, 'item', 'items')})")


def backups(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Only those of this collection.")] = "",
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="BACKUP", help="Delete this one; may be repeated.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask about --delete; needed where there is no terminal.")
    ] = False,
    from_: From = None,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: AsJson = False,
) -> None:
    """List the complete backups there are, and delete old ones.

    Pictures of a deleted one stay, since other backups at that place may share them.
    """
    _check_place(local, from_, "--from")
    if delete and not yes:
        named = count_of(len(delete), "backup", "backups")
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"say --yes to delete {named}")
        if not typer.confirm(f"Delete {named} ({printable(', '.join(delete))})?", err=True):
            raise TwinlensError("CANCELLED", "nothing was deleted")
    with connect(server, local, bundle, backups=from_) as client:
        for backup_id in delete or []:
            client.delete_backup(backup_id)
        found = client.list_backups(collection=name)
    if as_json:
        print_json({"backups": found})
    elif found:
        print_table(backup_table(found))
    else:
        typer.echo("no backups")
