"""`make demo`: from nothing to search and labels on real photos, through a real server."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from rich.console import Console

from twinlens.client import Client, Hit, NewItem
from twinlens.client.contact_sheet import contact_sheet
from twinlens.client.sources import walk_images
from twinlens.client.tables import hit_table, label_table
from twinlens.training.demo.failed import DemoFailed
from twinlens.training.demo.own_folder import claim
from twinlens.training.demo.served import served

# A name of its own: it is made anew on each run, and nothing else in the data folder is touched.
COLLECTION = "demo-photos"


@dataclass(frozen=True, slots=True)
class Photo:
    """A picture file, the id it is stored under, and its caption ("" for none)."""

    id: str
    path: Path
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    """What the demo asks of a set of photos.

    Attributes:
        photos: What is stored.
        texts: Text queries, answered with pictures.
        examples: Photos to find similar ones of; empty: two of those that could be stored.
        caption_queries: Text queries, answered with captions.
        labels: What photos are to be labelled with.
        to_label: The ids of those photos; empty: all.
    """

    photos: tuple[Photo, ...]
    texts: tuple[str, ...]
    examples: tuple[Photo, ...]
    caption_queries: tuple[str, ...]
    labels: tuple[str, ...]
    to_label: tuple[str, ...] = ()


# The photos of the scikit-image wheel (no download), with captions of our own.
_SHIPPED = {
    "astronaut.png": "an astronaut in an orange space suit in front of a flag",
    "brick.png": "a wall of bricks",
    "camera.png": "a man with a camera on a tripod",
    "cell.png": "a cell under a microscope",
    "chelsea.png": "a ginger tabby cat looking at the camera",
    "clock_motion.png": "a wall clock, blurred by motion",
    "coffee.png": "a cup of coffee on a saucer with a spoon",
    "coins.png": "rows of old coins",
    "grass.png": "blades of grass",
    "gravel.png": "gravel on the ground",
    "horse.png": "the black outline of a horse",
    "hubble_deep_field.jpg": "distant galaxies seen by a space telescope",
    "ihc.png": "stained tissue under a microscope",
    "moon.png": "the surface of the moon",
    "motorcycle_left.png": "a motorcycle in a garage",
    "motorcycle_right.png": "a motorcycle in a workshop, seen from the right",
    "page.png": "a printed page of a book",
    "retina.jpg": "the retina of an eye",
    "rocket.jpg": "a rocket on the launch pad at night",
    "text.png": "handwritten and printed text on paper",
}


def shipped_script() -> Script:
    """The photos that come with scikit-image (extra `demo`).

    Raises:
        DemoFailed: if scikit-image is not installed.
    """
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        raise DemoFailed("the demo photos come with scikit-image: pip install 'twinlens[demo]'")
    folder = Path(spec.origin).parent / "data"
    photos = {
        name: Photo(name, folder / name, caption) for name, caption in _SHIPPED.items() if (folder / name).is_file()
    }
    return Script(
        photos=tuple(photos.values()),
        texts=("a cat", "a cup of coffee", "a rocket launch", "a motorcycle", "money", "outer space"),
        examples=tuple(photos[name] for name in ("motorcycle_left.png", "chelsea.png") if name in photos),
        caption_queries=("a pet animal", "something to drink", "a vehicle"),
        labels=("cat", "cup of coffee", "rocket", "motorcycle", "coin", "astronaut", "clock", "horse", "page of text"),
        # The others (textures, microscopy, the sky) show nothing that a photo classifier has a word for.
        to_label=(
            "astronaut.png", "chelsea.png", "clock_motion.png", "coffee.png", "coins.png", "horse.png",
            "motorcycle_left.png", "motorcycle_right.png", "page.png", "rocket.jpg", "text.png",
        ),
    )  # fmt: skip


def folder_script(folder: Path, limit: int) -> Script:
    """Someone's own photos: the first `limit` pictures below `folder`, asked about everyday things.

    Raises:
        DemoFailed: if the folder is missing or holds no pictures.
    """
    if not folder.is_dir():
        raise DemoFailed(f"{folder} is not a folder")
    photos = tuple(Photo(found.id, found.path) for found in islice(walk_images(folder), limit))
    if not photos:
        raise DemoFailed(f"no pictures in {folder}")
    return Script(
        photos=photos,
        texts=("a person", "an animal", "food on a table", "a vehicle", "a building", "a landscape"),
        examples=(),
        caption_queries=(),
        labels=("person", "animal", "food", "vehicle", "building", "landscape", "plant", "indoor room", "document"),
    )


def run_demo(script: Script, out: Path, console: Console, *, top_k: int = 3) -> None:
    """Builds the starter encoder, serves it, and prints what it finds.

    Args:
        script: The photos and the questions.
        out: Folder for the bundle (kept between runs), the data with the demo's collection (made anew), and the sheet.
        console: Where the tables go.
        top_k: Hits a query.

    Raises:
        DemoFailed: if a step fails; one line.
    """
    started = time.monotonic()
    data = out / "data"
    claim(data, ".twinlens-demo")
    bundle = out / "models" / "starter" / "1"
    _build_starter(bundle, console)
    with served(data, bundle) as address, Client(address) as client:
        console.print(f"Server: [bold]{address}[/bold], a real gRPC server on loopback")
        stored = _ingest(client, script, console)
        examples = script.examples or stored[:: max(1, len(stored) // 2)][:2]
        rows = _search(client, script, examples, console, top_k)
        _label(client, script, console)
        sheet = out / "contact_sheet.png"
        contact_sheet(rows, columns=top_k + 1).save(sheet)
    console.print(f"Contact sheet of the hits: [bold]{sheet}[/bold]")
    console.print(f"The server stopped cleanly. Done in {time.monotonic() - started:.1f} s.")
    console.print(f"Serve it yourself: [bold]{_command()} serve --data {data} --port 50051[/bold]")


def _command() -> str:
    """How the reader starts twinlens: by its path, which `make demo` has not put into their shell."""
    beside = Path(sys.executable).with_name("twinlens")
    if not beside.exists():
        return "python -m twinlens"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def _build_starter(bundle: Path, console: Console) -> None:
    from twinlens.training.starter.build import build_starter  # noqa: PLC0415 - torch takes seconds to load

    if bundle.is_dir():
        console.print(f"Encoder: {bundle} is there already")
        return
    began = time.monotonic()
    console.print("Encoder: building the starter bundle (EfficientNet-Lite0 + MiniLM, no download) ...")
    manifest = build_starter(bundle)
    console.print(f"Encoder: {bundle}, space {manifest.space_id[:12]}, {time.monotonic() - began:.1f} s")


def _ingest(client: Client, script: Script, console: Console) -> tuple[Photo, ...]:
    if any(collection.id == COLLECTION for collection in client.list_collections()):
        client.delete_collection(COLLECTION)
    client.create_collection(COLLECTION)
    items = (NewItem(id=photo.id, image=photo.path, caption=photo.caption, uri=photo.id) for photo in script.photos)
    report = client.upsert(COLLECTION, items)
    console.print(f"Collection: {report.stored} photos stored in [bold]{COLLECTION}[/bold]")
    for failure in report.failures:
        console.print(f"  not stored: {failure.id}: {failure.message}", markup=False)
    if not report.stored:
        raise DemoFailed("none of the pictures could be stored")
    failed = {failure.position for failure in report.failures}
    return tuple(photo for position, photo in enumerate(script.photos) if position not in failed)


# What a contact sheet is drawn from: a title and its pictures with their captions.
SheetRow = tuple[str, list[tuple[bytes, str]]]


def _search(client: Client, script: Script, examples: Sequence[Photo], console: Console, top_k: int) -> list[SheetRow]:
    sheet: list[SheetRow] = []
    answers: list[tuple[str, list[Hit]]]
    answers = [(text, client.search(COLLECTION, text=text, top_k=top_k)) for text in script.texts]
    console.print(hit_table("Text → image", answers))
    sheet += [(f"“{query}”", _pictures(client, hits)) for query, hits in answers]

    answers = []
    for photo in examples:
        hits = client.search(COLLECTION, image=photo.path, top_k=top_k + 1)
        # The photo itself is in the collection and comes first; what is like it is the interesting part.
        answers.append((photo.id, [hit for hit in hits if hit.id != photo.id][:top_k]))
    if any(hits for _, hits in answers):
        console.print(hit_table("Image → image", answers))
    for photo, (query, hits) in zip(examples, answers, strict=True):
        sheet.append((f"like {query}", [(photo.path.read_bytes(), query), *_pictures(client, hits)]))

    if script.caption_queries:
        answers = [
            (text, client.search(COLLECTION, text=text, modality="text", top_k=top_k))
            for text in script.caption_queries
        ]
        console.print(hit_table("Text → text (captions)", answers, captions=True))
    return sheet


def _pictures(client: Client, hits: Sequence[Hit]) -> list[tuple[bytes, str]]:
    return [
        (client.get_item(COLLECTION, hit.id, include_image=True).image or b"", f"{hit.id}  {hit.score:.3f}")
        for hit in hits
    ]


def _label(client: Client, script: Script, console: Console) -> None:
    photos = [photo for photo in script.photos if not script.to_label or photo.id in script.to_label][:24]
    results = client.classify([photo.path for photo in photos], script.labels, top_k=2)
    console.print(label_table("Zero-shot labels", [photo.id for photo in photos], results))
