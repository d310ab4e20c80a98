"""Sets of pictures of one colour, which the fake encoder finds by the colour's name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.pictures import COLOURS, solid


def write_pictures(folder: Path) -> Path:
    """One picture of each of eight colours: `red.png` and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for colour in COLOURS:
        (folder / f"{colour}.png").write_bytes(solid(colour))
    return folder


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """A .jsonl file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_captions(folder: Path) -> Path:
    """Two captions of each of the eight pictures."""
    write_pictures(folder)
    rows = [
        {"image": f"{colour}.png", "caption": caption}
        for colour in COLOURS
        for caption in (f"a {colour} thing", f"something {colour}")
    ]
    return write_rows(folder / "captions.jsonl", rows)


def write_classes(folder: Path, colours: Iterable[str], each: int = 3) -> Path:
    """A folder a colour, with pictures of different sizes."""
    for colour in colours:
        (folder / colour).mkdir(parents=True)
        for i in range(each):
            (folder / colour / f"{i}.png").write_bytes(solid(colour, size=(40 + i, 40)))
    return folder


def write_choices(folder: Path) -> Path:
    """Right and wrong captions of two kinds; those of kind `blind` hold no colour, so that every choice is a tie."""
    write_pictures(folder)
    rows = [
        {"image": "red.png", "caption": "a red thing", "negative_caption": "a blue thing", "type": "colour"},
        {"image": "blue.png", "caption": "a blue thing", "negative_caption": "a red thing", "type": "colour"},
        {
            "image": "blue.png",
            "caption": "red stands by blue",
            "negative_caption": "blue stands by red",
            "type": "blind",
        },
    ]
    return write_rows(folder / "choices.jsonl", rows)


def write_pairs(folder: Path) -> Path:
    """Rows in Winoground's form."""
    write_pictures(folder)
    rows = [
        {"image_0": "red.png", "image_1": "blue.png", "caption_0": "red", "caption_1": "blue"},
        {"image_0": "red.png", "image_1": "blue.png", "caption_0": "blue", "caption_1": "red"},
    ]
    return write_rows(folder / "pairs.jsonl", rows)
