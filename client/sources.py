"""Where items come from: a folder of pictures or a .jsonl file, read as a stream."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinlens.client.errors import TwinlensError
from twinlens.client.sniff import is_image

JSON_LINES = frozenset({".jsonl", ".ndjson"})


@dataclass(slots=True)
class Skipped:
    """How many files a walk passed over: not pictures, or folders that could not be opened."""

    files: int = 0
    folders: int = 0


@dataclass(frozen=True, slots=True)
class FoundImage:
    """A picture in a folder: where it lies, and its path below the folder with "/" between parts, which is its id."""

    path: Path
    id: str


@dataclass(frozen=True, slots=True)
class Row:
    """An item of a source, its picture not yet read.

    Attributes:
        id: The id given, or the relative path; empty where the content's hash is to be the id.
        image: Where the picture lies; None for a caption alone.
        caption: The text, possibly empty.
        metadata: Everything else that was given.
        uri: Where the original lies, as the source names it.
        error: Why the row is of no use; its other fields then only say which row it is.
    """

    id: str
    image: Path | None = None
    caption: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    uri: str = ""
    error: str = ""


def read_source(source: str | os.PathLike[str], skipped: Skipped | None = None) -> Iterator[Row]:
    """The items of a folder, a single picture or a .jsonl file, one at a time.

    Raises:
        TwinlensError: NOT_FOUND if there is no such file or folder, INVALID_ARGUMENT if it is of no known kind; before
            the first item is asked for.
    """
    path = Path(source)
    if path.suffix.lower() in JSON_LINES and not path.is_dir():
        check_readable(path)
        return read_jsonl(path)
    return (Row(id=found.id, image=found.path, uri=_uri(found.path)) for found in walk_images(path, skipped))


def walk_images(folder: str | os.PathLike[str], skipped: Skipped | None = None) -> Iterator[FoundImage]:
    """The pictures below a folder, sorted by path, in the memory of one folder's names.

    Hidden files and folders are passed over. Links are followed, but no folder is entered twice, so loops end.
    A file is a picture if its name ends like one or its first bytes are those of one; others are counted in `skipped`.

    Raises:
        TwinlensError: NOT_FOUND if there is no such folder, INVALID_ARGUMENT if it is a file but no picture; at once.
    """
    root = Path(folder)
    counts = skipped if skipped is not None else Skipped()
    if not root.exists():
        raise TwinlensError("NOT_FOUND", f"no such folder: {root}")
    if root.is_dir():
        try:
            os.scandir(root).close()
        except OSError as error:
            raise TwinlensError("PERMISSION_DENIED", f"cannot open the folder {root}: {error.strerror}") from None
        return _walk(root, "", set(), counts)
    if not is_image(root):
        raise TwinlensError("INVALID_ARGUMENT", f"{root} is neither a folder nor a picture")
    return iter((FoundImage(root, portable(root.name)),))


def _walk(folder: Path, prefix: str, seen: set[tuple[int, int]], skipped: Skipped) -> Iterator[FoundImage]:
    # An explicit stack of iterators: trees may be deeper than Python's recursion limit.
    stack = [_names(folder, prefix, seen, skipped)]
    while stack:
        try:
            path, below = next(stack[-1])
        except StopIteration:
            stack.pop()
            continue
        try:
            mode = path.stat().st_mode
        except OSError:
            mode = stat.S_IFREG  # a broken link: named like a picture, it is reported as one that cannot be read
        if stat.S_ISDIR(mode):
            stack.append(_names(path, f"{below}/", seen, skipped))
        elif stat.S_ISREG(mode) and is_image(path):
            yield FoundImage(path, portable(below))
        else:
            skipped.files += 1


def _names(folder: Path, prefix: str, seen: set[tuple[int, int]], skipped: Skipped) -> Iterator[tuple[Path, str]]:
    try:
        status = folder.stat()
        if (status.st_dev, status.st_ino) in seen:
            return
        seen.add((status.st_dev, status.st_ino))
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone take the least memory
    except OSError:
        skipped.folders += 1
        return
    for name in names:
        if not name.startswith("."):
            yield folder / name, prefix + name


def check_readable(path: Path) -> None:
    """Raises TwinlensError, in one line, where a file cannot be opened for reading."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        raise TwinlensError("NOT_FOUND", f"no such file: {path}") from None
    except OSError as error:
        raise TwinlensError("INVALID_ARGUMENT", f"cannot read {path}: {error.strerror}") from None


def read_jsonl(path: Path) -> Iterator[Row]:
    """The rows of a JSON Lines file, one at a time.

    A row has `image` (a path, relative to the file's folder) or `text`/`caption`, or both, and may have `id`, `uri` and
    `metadata`; other keys become metadata. A bad line is a row with an error; the lines after it are read.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _row(line, number, path.parent)


def _row(line: bytes, number: int, folder: Path) -> Row:
    where = f"line {number}"
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Row(id=where, error=f"it is not JSON: {error}")
    if not isinstance(given, dict):
        return Row(id=where, error="it is not a JSON object")
    for key in ("image", "text", "caption", "uri"):
        if not isinstance(given.get(key), str | None):
            return Row(id=where, error=f"{key!r} is not text")
    image = given.pop("image", None)
    text, caption = given.pop("text", None), given.pop("caption", None)
    item_id, uri = given.pop("id", None), given.pop("uri", None)
    metadata = given.pop("metadata", None) or {}
    if not isinstance(metadata, dict):
        return Row(id=where, error="'metadata' is not an object")
    if not isinstance(item_id, str | int | None) or isinstance(item_id, bool):
        return Row(id=where, error="'id' is neither text nor a whole number")
    if not image and not (caption or text):
        if empty := next((key for key, value in (("caption", caption), ("text", text)) if value is not None), None):
            return Row(id=where, error=f"the {empty} is empty")
        return Row(id=where, error="it has neither 'image' nor 'text' nor 'caption'")
    if caption and text and caption != text:
        return Row(id=where, error="it has both 'text' and 'caption', and they differ")
    return Row(
        id=str(item_id) if item_id not in (None, "") else (image or ""),
        image=folder / image if image else None,
        caption=caption or text or "",
        metadata={**given, **metadata},
        uri=uri if uri is not None else (_uri(folder / image) if image else ""),
    )


def _uri(path: Path) -> str:
    """The absolute path: the same from wherever the command runs, and of use to whoever looks for the original."""
    return portable(os.path.abspath(path))  # noqa: PTH100 - Path.resolve would follow links


def portable(name: str) -> str:
    """A file name as text; bytes that are no UTF-8 become backslash escapes, since ids must be text."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
