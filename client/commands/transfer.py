"""`twinlens collections export` and `import`: a whole collection as a file, and vectors from files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, cast

import typer

from twinlens.client.client import Client
from twinlens.client.collection_types import IndexKind
from twinlens.client.commands.filter_errors import pointing_into
from twinlens.client.commands.options import AsJson, Bundle, Filter, Kind, Local, Name, Server
from twinlens.client.commands.output import count_of, print_json
from twinlens.client.connect import connect
from twinlens.client.convert_collection import index_kind
from twinlens.client.errors import TwinlensError, invalid
from twinlens.client.import_rows import import_rows
from twinlens.client.import_source import ImportSource, numpy_source, parquet_source
from twinlens.client.parquet_export import parquet_export
from twinlens.client.progress import progress
from twinlens.client.types import Modality

_BOTH: tuple[Modality, ...] = ("image", "text")
_SAME = "same"


def export(
    name: Name,
    out: Annotated[
        Path, typer.Argument(metavar="FILE.parquet", help="The file to write; one that exists is replaced.")
    ],
    filter_: Filter = "",
    vectors: Annotated[
        list[str] | None,
        typer.Option("--vectors", metavar="image|text|none", help="Which vectors; may be repeated. Default: both."),
    ] = None,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: AsJson = False,
) -> None:
    """Write a collection's items and vectors to a Parquet file.

    A row an item, by id: `id`, `uri`, `caption`, `metadata` (JSON), `content_hash`, `create_time`, `update_time`,
    `image_vector`, `text_vector` (lists of fixed size; null where there is none). Pictures are not in it: see `twinlens
    collections backup`. The file appears once it is complete.
    """
    chosen = _modalities(vectors)
    if out.suffix.lower() != ".parquet":
        raise invalid(f"{out} must end in .parquet")
    if not out.parent.is_dir():
        raise TwinlensError("NOT_FOUND", f"no such folder: {out.parent}")
    count = 0
    with connect(server, local, bundle) as client, pointing_into(filter_):
        collection = client.get_collection(name)
        total = client.count_items(name, filter_) if filter_ else collection.item_count
        rows = client.export_items(name, filter=filter_, vectors=chosen)
        with (
            parquet_export(out, collection, chosen) as file,
            progress("exported", lambda: total) as shown,
        ):
            for row in rows:
                if row.space_id != collection.space_id:
                    raise TwinlensError("ABORTED", f"{name} was moved to another model meanwhile: export it again")
                file.write(row)
                count += 1
                shown.advance(1)
    if as_json:
        print_json({"collection": name, "file": str(out), "items": count, "space_id": collection.space_id})
    else:
        typer.echo(f"wrote {count_of(count, 'item', 'items')} to {out}")


def import_(
    name: Name,
    source: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A .parquet file (of `export`, or another), or a .npy matrix of vectors."),
    ],
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=COLUMN",
            help="Parquet: take NAME (id, uri, caption, metadata[.KEY], image_vector, text_vector) from COLUMN; may be "
            "repeated. Default: columns of those names.",
        ),
    ] = None,
    ids: Annotated[
        Path | None, typer.Option("--ids", metavar="FILE", help="NumPy: a line of text a row. Default: numbers.")
    ] = None,
    metadata: Annotated[
        Path | None, typer.Option("--metadata", metavar="FILE.jsonl", help="NumPy: an object a row.")
    ] = None,
    modality: Annotated[
        str, typer.Option("--modality", metavar="image|text", help="NumPy: whose vectors they are.")
    ] = "image",
    space: Annotated[
        str,
        typer.Option(
            "--space",
            metavar="SPACE_ID",
            help=f"The space of the vectors, or `{_SAME}` if the server's own model made them. Default: what the file "
            "says.",
        ),
    ] = "",
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace items that have a picture, too, which is then gone."),
    ] = False,
    kind: Kind = None,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: AsJson = False,
) -> None:
    """Store items with vectors that exist already, from Parquet or NumPy; the collection is created if it is missing.

    Vectors must belong to the collection's space: nobody could tell later. Rows without any vector are embedded, if
    they have a caption. Items of a known id are replaced, but those with a picture only with --replace, for a file
    brings none. Rows that fail are listed; the exit code is 0 if at least one is stored.
    """
    index_kind(kind)  # refused by name, also where the collection is there
    found = _source(source, column or [], ids, metadata, modality)
    with connect(server, local, bundle, create=True) as client:
        space_id = _space(client, source, found, space)
        with _ensured(client, name, kind) as created, progress("stored", lambda: found.count) as shown:
            report = import_rows(client, name, found, space_id, replace=replace, shown=shown)
    if as_json:
        counts = {"stored": report.stored, "failed": report.failed, "failures": report.failures}
        print_json({"collection": name, "created": created, **counts})
    if not report.stored:
        rows = count_of(report.failed, "row", "rows")
        raise invalid(f"nothing was stored in {name}: {rows} failed of {found.count:,}")
    if not as_json:
        also = f", {report.failed:,} failed" if report.failed else ""
        typer.echo(f"{name}{' (new)' if created else ''}: {report.stored:,} stored{also}")


def _modalities(given: list[str] | None) -> tuple[Modality, ...]:
    if not given:
        return _BOTH
    if given == ["none"]:
        return ()
    for each in given:
        if each not in _BOTH:
            raise invalid(f"--vectors is one of image, text and none, not {each!r}")
    return tuple(modality for modality in _BOTH if modality in given)


def _source(path: Path, column: list[str], ids: Path | None, metadata: Path | None, modality: str) -> ImportSource:
    match path.suffix.lower():
        case ".parquet":
            if ids is not None or metadata is not None:
                raise invalid("--ids and --metadata go with .npy files; a Parquet file has columns: see --column")
            pairs = [each.partition("=") for each in column]
            if bad := next((name for name, _, of in pairs if not name or not of), None):
                raise invalid(f"--column is NAME=COLUMN, not {bad!r}")
            return parquet_source(path, {name: of for name, _, of in pairs})
        case ".npy":
            if column:
                raise invalid("--column goes with Parquet files; a .npy file has --ids and --metadata beside it")
            return numpy_source(path, "text" if modality == "text" else _image(modality), ids, metadata)
        case _:
            raise invalid(f"{path} is neither a .parquet nor a .npy file")


def _image(modality: str) -> Modality:
    if modality != "image":
        raise invalid(f"--modality is image or text, not {modality!r}")
    return "image"


def _space(client: Client, path: Path, found: ImportSource, given: str) -> str:
    if not found.has_vectors:
        return ""
    space_id = given or found.space_id
    if not space_id:
        raise invalid(
            f"{path} does not say which model made its vectors: give --space SPACE_ID, or --space {_SAME} if it was "
            "the one that is served"
        )
    return client.model().info.space_id if space_id == _SAME else space_id


@contextmanager
def _ensured(client: Client, name: str, kind: str | None) -> Iterator[bool]:
    """Creates a collection that is missing, and says so; if nothing was stored in it, it goes again."""
    try:
        there = client.get_collection(name)
    except TwinlensError as error:
        if error.code != "NOT_FOUND":
            raise
    else:
        if kind not in {None, there.index_kind}:
            raise invalid(
                f"collection {name} is of kind {there.index_kind}: leave --kind out, or change it with `twinlens "
                f"collections merge {name} --kind {kind}`"
            )
        yield False
        return
    client.create_collection(name, kind=cast("IndexKind | None", kind))
    try:
        yield True
    finally:
        with suppress(TwinlensError):
            if not client.get_collection(name).item_count:
                client.delete_collection(name)
