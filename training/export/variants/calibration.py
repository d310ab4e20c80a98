"""What variants are calibrated and judged on: pictures, texts and labelled pictures that the user names."""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from twinlens.client.example_files import LIST_IN_FOLDER
from twinlens.encoders.embed_sources import FolderSource
from twinlens.training.errors import first_line
from twinlens.training.export.errors import ExportError

CAPTIONS = "captions.jsonl"


@dataclass(frozen=True)
class Photo:
    """A picture with the captions that describe it."""

    path: Path
    captions: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabelledSet:
    """Pictures of known classes, for zero-shot accuracy.

    Attributes:
        name: For people.
        photos: The pictures.
        labels: For each picture the index of its class.
        names: The classes as words.
    """

    name: str
    photos: tuple[Path, ...]
    labels: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class CalibrationData:
    """All of it. Without texts and captions, a list that comes with the program is used.

    Attributes:
        photos: Pictures; split in two: one part is calibrated on, the other judges.
        texts: Texts beside the captions; split likewise.
        labelled: Sets that only judge.
    """

    photos: tuple[Photo, ...] = ()
    texts: tuple[str, ...] = ()
    labelled: tuple[LabelledSet, ...] = ()


def read_calibration(
    photos: Sequence[Path] = (), texts: Path | None = None, labels: Sequence[Path] = ()
) -> CalibrationData:
    """Finds the data in folders and files.

    Args:
        photos: Folders of pictures. A `captions.jsonl` in one (rows of `image` and `caption`) says what pictures show;
            those that no row names count, too.
        texts: A file with one text a line, or JSONL rows with `caption` or `text`.
        labels: Folders with a `labels.jsonl` (rows of `image` and `label`) or one subfolder for each class.

    Raises:
        ExportError: if a folder or file is missing or holds nothing of use.
    """
    found = tuple(photo for folder in photos for photo in _photos(folder))
    return CalibrationData(
        photos=found,
        texts=() if texts is None else _texts(texts),
        labelled=tuple(_labelled(folder) for folder in labels),
    )


def _photos(folder: Path) -> list[Photo]:
    _require_folder(folder)
    captions: dict[str, list[str]] = {}
    if (folder / CAPTIONS).is_file():
        for row in _rows(folder / CAPTIONS, ("image", "caption")):
            captions.setdefault(os.path.normpath(folder / row["image"]), []).append(row["caption"])
    for item in FolderSource(folder):
        if item.image is not None:
            captions.setdefault(os.path.normpath(item.image), [])
    if not captions:
        raise ExportError(f"no pictures in {folder}")
    return [Photo(Path(image), tuple(lines)) for image, lines in captions.items()]


def _texts(file: Path) -> tuple[str, ...]:
    if file.suffix == ".jsonl":
        texts = [row.get("caption") or row.get("text") or "" for row in _rows(file, ())]
    else:
        texts = _read(file).splitlines()
    found = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if not found:
        raise ExportError(f"no texts in {file}")
    return found


def _labelled(folder: Path) -> LabelledSet:
    _require_folder(folder)
    if (folder / LIST_IN_FOLDER).is_file():
        pairs = [(folder / row["image"], row["label"]) for row in _rows(folder / LIST_IN_FOLDER, ("image", "label"))]
    else:
        pairs = [
            (item.image, item.id.split("/")[0].replace("_", " "))
            for item in FolderSource(folder)
            if item.image is not None and "/" in item.id
        ]
    names = tuple(sorted({label for _, label in pairs}))
    if len(names) < 2:
        raise ExportError(
            f"{folder} labels no pictures of two classes: a {LIST_IN_FOLDER} or one subfolder a class is wanted"
        )
    return LabelledSet(
        folder.resolve().name, tuple(path for path, _ in pairs), tuple(names.index(label) for _, label in pairs), names
    )


def _rows(file: Path, wanted: tuple[str, ...]) -> Iterator[dict[str, str]]:
    for number, line in enumerate(_read(file).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ExportError(f"{file}, line {number}: not JSON: {first_line(error)}") from error
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in wanted):
            raise ExportError(f"{file}, line {number}: an object with the texts {' and '.join(wanted)} is wanted")
        yield {key: value for key, value in row.items() if isinstance(value, str)}


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ExportError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ExportError(f"cannot read {file}: it is not UTF-8 text") from error


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ExportError(f"{folder} is {'not a folder' if folder.exists() else 'not there'}")
