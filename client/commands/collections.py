"""`twinlens collections`: what is stored."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, cast

import typer

from twinlens.client.client import Client
from twinlens.client.collection_tables import collection_details, collection_table, generation_table, index_table
from twinlens.client.collection_types import IndexKind
from twinlens.client.commands.filter_errors import pointing_into
from twinlens.client.commands.options import AsJson, Bundle, Filter, Kind, Local, Name, Server
from twinlens.client.commands.output import print_json, print_table
from twinlens.client.connect import connect
from twinlens.client.errors import TwinlensError
from twinlens.client.tables import item_table
from twinlens.printable import printable

collections = typer.Typer(
    name="collections",
    help="List, show, create and delete collections, look at their items, back them up, check them, move them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@collections.command("list")
def list_(server: Server = None, local: Local = None, bundle: Bundle = None, as_json: AsJson = False) -> None:
    """List the collections."""
    with connect(server, local, bundle) as client:
        found, model = client.list_collections(), client.model().info
    if as_json:
        print_json({"collections": found})
    elif found:
        print_table(collection_table("Collections", found, model))
    else:
        typer.echo("no collections")


@collections.command()
def show(
    name: Name, server: Server = None, local: Local = None, bundle: Bundle = None, as_json: AsJson = False
) -> None:
    """Show a collection's counts, sizes, indexes and generations, and the space of its vectors."""
    with connect(server, local, bundle) as client:
        found, model = client.get_collection(name), client.model().info
    if as_json:
        print_json(found)
    else:
        print_table(collection_details(found, model))
        print_table(index_table(found))
        if len(found.generations) > 1:
            print_table(generation_table(found, model))
        if found.metadata_indexes:
            typer.echo(printable(f"indexed metadata: {', '.join(found.metadata_indexes)}"))


@collections.command()
def create(
    name: Name,
    kind: Kind = None,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: AsJson = False,
) -> None:
    """Create an empty collection (`twinlens ingest` does so by itself)."""
    with connect(server, local, bundle, create=True) as client:
        made = client.create_collection(name, kind=cast("IndexKind | None", kind))  # others are refused by name
    if as_json:
        print_json(made)
    else:
        typer.echo(f"created {made.id}")


@collections.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")] = False,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
) -> None:
    """Delete a collection and everything in it."""
    with connect(server, local, bundle) as client:
        held = _held(client, name)
        if not yes:
            if not sys.stdin.isatty():
                raise typer.BadParameter(f"{name} holds {held}: say --yes to delete it")
            if not typer.confirm(f"Delete {name} with {held}?", err=True):
                raise TwinlensError("CANCELLED", f"{name} was not deleted")
        client.delete_collection(name)
    typer.echo(f"deleted {name} ({held})")


def _held(client: Client, name: str) -> str:
    """What would be deleted, in words; a damaged collection does not know."""
    try:
        return f"{client.get_collection(name).item_count:,} items"
    except TwinlensError as error:
        if error.code != "DATA_LOSS":
            raise
        return "a damaged database"


@collections.command()
def remove(
    name: Name,
    item_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="The items' ids; unknown ones are no error.")
    ] = None,
    filter_: Filter = "",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask about --filter; needed where there is no terminal.")
    ] = False,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
) -> None:
    """Delete items, durably: those named, or all that match a filter."""
    ids = item_ids or []
    if bool(ids) == bool(filter_.strip()):
        raise typer.BadParameter("name the items' ids, or say which ones with --filter: one of both")
    with connect(server, local, bundle) as client, pointing_into(filter_):
        if not ids:
            count = client.count_items(name, filter_)
            if not yes:
                if not sys.stdin.isatty():
                    raise typer.BadParameter(f"{count:,} items match: say --yes to delete them")
                if not typer.confirm(f"Delete {count:,} items of {name}?", err=True):
                    raise TwinlensError("CANCELLED", "nothing was deleted")
            typer.echo(f"deleted {client.delete_items(name, filter=filter_):,} items")
            return
        count = client.delete_items(name, ids)
    typer.echo(f"deleted {count:,} of {len(set(ids)):,} items")


@collections.command()
def count(name: Name, filter_: Filter = "", server: Server = None, local: Local = None, bundle: Bundle = None) -> None:
    """Count a collection's items, or those that match a filter."""
    with connect(server, local, bundle) as client, pointing_into(filter_):
        typer.echo(client.count_items(name, filter_))


@collections.command()
def items(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many items; 0 means all.")] = 100,
    filter_: Filter = "",
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON Lines on stdout, an object an item.")] = False,
) -> None:
    """List a collection's items, by id."""
    with connect(server, local, bundle) as client, pointing_into(filter_):
        found = client.list_items(name, filter=filter_)
        shown = islice(found, limit) if limit else found
        if as_json:
            for item in shown:
                print_json(item, indent=None)
            return
        page = list(islice(shown, 1000))
        while page:  # a table a page, so that a collection of any size can be listed
            print_table(item_table(page))
            page = list(islice(shown, 1000))


@collections.command()
def get(
    name: Name,
    item_id: Annotated[str, typer.Argument(metavar="ID", help="The item's id.")],
    save_image: Annotated[
        Path | None, typer.Option("--save-image", metavar="FILE", help="Write the stored picture, byte for byte.")
    ] = None,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
) -> None:
    """Show one item as JSON, and on demand save its picture."""
    with connect(server, local, bundle) as client:
        item = client.get_item(name, item_id, include_image=save_image is not None)
    print_json(item)
    if save_image is not None:
        if item.image is None:
            raise TwinlensError("NOT_FOUND", f"{item_id} has no picture")
        try:
            save_image.write_bytes(item.image)
        except OSError as error:
            raise TwinlensError("PERMISSION_DENIED", f"cannot write {save_image}: {error.strerror}") from None
