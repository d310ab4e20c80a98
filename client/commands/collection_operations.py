"""`twinlens collections merge`, `check`, `duplicates`, `generations` and `index`."""

from __future__ import annotations

from heapq import nsmallest
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Annotated, cast

import typer

from twinlens.client.client import Client
from twinlens.client.collection_tables import generation_table, index_table
from twinlens.client.collection_types import DuplicateGroup, Finding, IndexKind, OperationProgress
from twinlens.client.commands.options import AsJson, Bundle, Kind, Local, Name, Server
from twinlens.client.commands.output import count_of, print_json, print_table
from twinlens.client.commands.sheets import check_sheet, stored_picture
from twinlens.client.commands.sheets import save_sheet as write_sheet
from twinlens.client.connect import connect
from twinlens.client.errors import invalid
from twinlens.client.progress import step_progress
from twinlens.printable import printable

_SHOWN_IDS = 8
_DRAWN_GROUPS = 40
_DRAWN_IDS = 5


def merge(
    name: Name,
    kind: Kind = None,
    background: Annotated[
        bool, typer.Option("--background", help="Do not wait for it; `show` tells when it is done.")
    ] = False,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: AsJson = False,
) -> None:
    """Merge now what was written since the last merge, and on demand change the kind of index."""
    if background and local is not None:
        raise typer.BadParameter(
            "--background goes with a server that stays: with --local nothing would be left to do it"
        )
    with connect(server, local, bundle) as client, step_progress() as shown:
        shown(OperationProgress("merging", 0, 0))  # no more is told of it, but a terminal shows that time passes
        merged = client.merge_collection(name, kind=cast("IndexKind | None", kind), wait=not background)
    if as_json:
        print_json(merged)
    else:
        print_table(index_table(merged))


def check(
    name: Name, server: Server = None, local: Local = None, bundle: Bundle = None, as_json: AsJson = False
) -> None:
    """Compare everything a collection stores with everything else, while it is served.

    Database, vectors, pictures, index files, and what searches find beside exact ones. Changes nothing. The exit code
    is 1 if something is wrong.
    """
    findings: list[Finding] = []
    count = 0
    with connect(server, local, bundle) as client, step_progress() as shown:
        for finding in client.check_collection(name, progress=shown):
            count += 1
            if as_json:
                findings.append(finding)
            else:
                subject = f" {finding.subject}:" if finding.subject else ""
                typer.echo(printable(f"{finding.part}:{subject} {finding.message}"))
    if as_json:
        print_json({"collection": name, "findings": findings})
    else:
        typer.echo(f"{name}: {count_of(count, 'finding', 'findings')}" if count else f"{name}: all is well")
    if count:
        raise typer.Exit(1)


def duplicates(
    name: Name,
    threshold: Annotated[
        float, typer.Option("--threshold", "-t", help="Lowest cosine that links two items, above 0 to 1.")
    ] = 0.95,
    modality: Annotated[
        str, typer.Option("--modality", metavar="image|text", help="Compare pictures or captions.")
    ] = "image",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many groups; 0 means all.")] = 100,
    save_sheet: Annotated[
        Path | None,
        typer.Option(
            "--save-sheet",
            metavar="FILE.png",
            help=f"Draw the pictures of those {_DRAWN_GROUPS} groups that are least alike, to judge the threshold by.",
        ),
    ] = None,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON Lines on stdout, an object a group.")] = False,
) -> None:
    """Find groups of items that look or read alike, largest first.

    Two items are linked by a cosine of at least the threshold; a group is what hangs together, so its ends may be
    further apart. Changes nothing: `twinlens collections remove` does.
    """
    if modality not in {"image", "text"}:
        raise invalid(f"--modality is image or text, not {modality!r}")
    if save_sheet is not None:
        check_sheet(save_sheet)
    groups = items = 0
    drawn: list[DuplicateGroup] = []
    with connect(server, local, bundle) as client, step_progress() as shown:
        found = client.find_duplicates(
            name, modality="text" if modality == "text" else "image", threshold=threshold, progress=shown
        )
        for group in islice(found, limit) if limit else found:
            groups, items = groups + 1, items + len(group.ids)
            if as_json:
                print_json(group, indent=None)
            else:
                typer.echo(_line(group))
            if save_sheet is not None:
                drawn = nsmallest(_DRAWN_GROUPS, [*drawn, group], key=attrgetter("score"))
        if save_sheet is not None and drawn:
            write_sheet([_row(client, name, group) for group in drawn], save_sheet)
    if not as_json:
        typer.echo(_summary(groups, items, cut=bool(limit) and groups == limit))


def _summary(groups: int, items: int, *, cut: bool) -> str:
    if not groups:
        return "no duplicates"
    largest = "the largest " if cut else ""
    return f"{largest}{count_of(groups, 'group', 'groups')}, with {count_of(items, 'item', 'items')}"


def _row(client: Client, name: str, group: DuplicateGroup) -> tuple[str, list[tuple[bytes, str]]]:
    """A group on a contact sheet."""
    title = f"{len(group.ids):,} items, cosine {group.score:.3f}"
    return title, [(stored_picture(client, name, each), each) for each in group.ids[:_DRAWN_IDS]]


def _line(group: DuplicateGroup) -> str:
    more = len(group.ids) - _SHOWN_IDS
    ids = ", ".join(group.ids[:_SHOWN_IDS]) + (f" and {more:,} more" if more > 0 else "")
    return printable(f"{len(group.ids):,} items, cosine {group.score:.3f}: {ids}")


def generations(
    name: Name,
    drop: Annotated[
        list[int] | None, typer.Option("--drop", metavar="NUMBER", help="Remove this one; may be repeated.")
    ] = None,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: AsJson = False,
) -> None:
    """List the generations of a collection's vectors, one for each model, and drop old ones."""
    with connect(server, local, bundle) as client:
        found = client.get_collection(name)
        for number in drop or []:
            found = client.drop_generation(name, number)
        model = client.model().info
    if as_json:
        print_json({"generations": found.generations})
    else:
        print_table(generation_table(found, model))


def index(
    name: Name,
    path: Annotated[
        str | None,
        typer.Argument(metavar="[PATH]", help="The path to index, such as camera.model. Default: list them."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the index of PATH.")] = False,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: AsJson = False,
) -> None:
    """Index a path into the items' metadata, so that filters on it read few items."""
    if remove and path is None:
        raise typer.BadParameter("--remove needs the PATH whose index is to go")
    with connect(server, local, bundle) as client:
        if path is None:
            found = client.get_collection(name)
        elif remove:
            found = client.delete_metadata_index(name, path)
        else:
            found = client.create_metadata_index(name, path)
    if as_json:
        print_json({"metadata_indexes": found.metadata_indexes})
    else:
        typer.echo(printable(", ".join(found.metadata_indexes) or "no indexes on metadata"))
