"""`twinlens search`: the items of a collection that are nearest to a query."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from twinlens.client.client import Client
from twinlens.client.commands.filter_errors import pointing_into
from twinlens.client.commands.options import AsJson, Bundle, CollectionName, Filter, Local, Server
from twinlens.client.commands.output import print_json, print_table
from twinlens.client.commands.sheets import check_sheet, stored_picture
from twinlens.client.commands.sheets import save_sheet as write_sheet
from twinlens.client.connect import connect
from twinlens.client.convert import error_of_call
from twinlens.client.images import read_image
from twinlens.client.progress import print_line, stderr_console
from twinlens.client.query import mix
from twinlens.client.tables import hit_table
from twinlens.client.types import Hit, ItemError, Part


class ModalityName(StrEnum):
    """Which vectors to search."""

    image = "image"
    text = "text"


def search(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What to look for, in words.")] = None,
    *,
    collection: CollectionName,
    image: Annotated[
        Path | None, typer.Option("--image", metavar="FILE", help="What to look for, as a picture.")
    ] = None,
    item: Annotated[
        str | None, typer.Option("--item", metavar="ID", help="An item of the collection to find similar ones of.")
    ] = None,
    negative: Annotated[
        list[str] | None, typer.Option("--negative", metavar="TEXT", help="What to keep away from; may be repeated.")
    ] = None,
    negative_weight: Annotated[
        float, typer.Option("--negative-weight", min=0.0, help="How strongly, against 1 for the rest of the query.")
    ] = 0.5,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, max=10_000, help="How many hits.")] = 10,
    modality: Annotated[
        ModalityName, typer.Option("--modality", help="Compare with the items' pictures or with their captions.")
    ] = ModalityName.image,
    min_score: Annotated[
        float | None, typer.Option("--min-score", help="Leave out hits whose cosine, from -1 to 1, is lower.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare with every stored vector instead of asking the index.")
    ] = False,
    filter_: Filter = "",
    save_sheet: Annotated[
        Path | None,
        typer.Option("--save-sheet", metavar="FILE.png", help="Draw the hits' pictures on a contact sheet."),
    ] = None,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: AsJson = False,
) -> None:
    """Find the items nearest to TEXT, a picture, an item, or a mix of them."""
    if text is None and image is None and item is None:
        raise typer.BadParameter("nothing to look for: give TEXT, --image FILE or --item ID")
    if save_sheet is not None:
        check_sheet(save_sheet)
    away = [Part(text=each, weight=-negative_weight) for each in negative or []]
    with connect(server, local, bundle) as client, pointing_into(filter_):
        query = mix(text=text, image=image, vector=None, item=item, parts=away)
        (found,) = client.search_batch(
            collection,
            [query],
            modality=modality.value,
            top_k=top_k,
            min_score=min_score,
            exact=exact,
            filter=filter_,
        )
        if found.error is not None:
            raise error_of_call(found.error)
        hits = list(found.hits)
        elsewhere = "" if hits else _elsewhere(client, collection, modality)
        if save_sheet is not None:
            _save_sheet(client, collection, _title(text, image, item, negative or []), image, hits, save_sheet)
    if found.truncated:
        print_line(stderr_console(), "the text is longer than the model reads: only its beginning was looked for")
    if elsewhere:
        print_line(stderr_console(), elsewhere)
    if as_json:
        print_json({"collection": collection, "hits": hits, "truncated": found.truncated})
    elif hits:
        print_table(hit_table(_title(text, image, item, negative or []), [("", hits)]))
    else:
        typer.echo("no hits")


def _elsewhere(client: Client, collection: str, modality: ModalityName) -> str:
    """Where there is something to find; empty unless the collection holds only the other modality."""
    held = client.get_collection(collection)
    pictures, texts = held.image_vector_count, held.text_vector_count
    if modality is ModalityName.image and texts and not pictures:
        return "the collection holds no pictures; try --modality text"
    if modality is ModalityName.text and pictures and not texts:
        return "the collection holds no texts; try --modality image"
    return ""


def _title(text: str | None, image: Path | None, item: str | None, negative: list[str]) -> str:
    parts = [*([f"“{text}”"] if text is not None else [])]
    parts += [f"like {image.name}"] if image is not None else []
    parts += [f"like {item}"] if item is not None else []
    return " + ".join(parts) + "".join(f" - “{each}”" for each in negative)


def _save_sheet(client: Client, collection: str, title: str, query: Path | None, hits: list[Hit], out: Path) -> None:
    cells: list[tuple[bytes, str]] = []
    if query is not None:
        data = read_image(query)
        cells.append((b"" if isinstance(data, ItemError) else data, "the query"))
    cells += [(stored_picture(client, collection, hit.id), f"{hit.score:.3f}  {hit.id}") for hit in hits]
    write_sheet([(title, cells)], out)
