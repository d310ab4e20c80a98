"""What `twinlens embed` reads: a folder of pictures, or a JSONL file of pictures and texts. Read as a stream."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from twinlens.encoders.sniff import IMAGE_SUFFIXES, SNIFF_BYTES, looks_like_image


@dataclass(frozen=True, slots=True)
class SourceItem:
    """One thing to embed: a picture's path, a text, or (`problem`) a row that is neither."""

    id: str
    image: Path | None = None
    text: str | None = None
    problem: str = ""


class Source(Protocol):
    """Items in a fixed order; may be read several times."""

    @property
    def skipped(self) -> int:
        """Files or rows passed over in the last reading."""
        ...

    @property
    def captions_left_out(self) -> int:
        """Captions beside pictures in the last reading: of such a row the picture alone is an item."""
        ...

    def __iter__(self) -> Iterator[SourceItem]:
        """Reads from the start."""
        ...


@dataclass
class FolderSource:
    """The pictures under a folder, recursively, in sorted order; ids are relative paths with forward slashes.

    A file is a picture if it has a picture's suffix or a picture's first bytes; others are skipped and counted. Hidden
    files and folders are left out. Links are followed, but no folder is entered twice, so loops end. (The client's
    `ingest` and `label` walk by the same rule.)
    """

    folder: Path
    skipped: int = field(default=0, init=False)
    captions_left_out: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[SourceItem]:
        """Walks the folder."""
        self.skipped = 0
        seen: set[tuple[int, int]] = set()
        # An explicit stack: trees may be deeper than Python's recursion limit.
        stack = [_listing(self.folder, "", seen)]
        while stack:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
            elif isinstance(entry, SourceItem):
                yield entry
            elif stat.S_ISDIR(mode := _mode(entry[0])):
                stack.append(_listing(entry[0], f"{entry[1]}/", seen))
            elif stat.S_ISREG(mode) and _is_picture(entry[0]):
                yield SourceItem(_clean_id(entry[1]), image=entry[0])
            else:
                self.skipped += 1


@dataclass
class JsonlSource:
    """Rows with `image` (a path, relative to the file or absolute) or `caption` (or `text`), and optionally `id`.

    The files that the client's `ingest` takes. An item has one vector here, so of a row with both the picture is taken,
    and its caption counted as left out. Without an id, a picture's is its path as given and a text's is `line-N`,
    counted from 1. A row that repeats an earlier one (same id, same input) is skipped; the same id with another input
    is a problem.
    """

    file: Path
    skipped: int = field(default=0, init=False)
    captions_left_out: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[SourceItem]:
        """Reads the file row by row."""
        self.skipped = self.captions_left_out = 0
        seen: dict[str, int] = {}
        with self.file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                item = self._row(line, number)
                mark = hash((item.image, item.text))
                if item.problem:
                    yield item
                elif item.id not in seen:
                    seen[item.id] = mark
                    yield item
                elif seen[item.id] == mark:
                    self.skipped += 1
                else:
                    yield SourceItem(f"line-{number}", problem=f"the id {item.id!r} was used before")

    def _row(self, line: bytes, number: int) -> SourceItem:
        fallback = f"line-{number}"
        try:
            row = json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            return SourceItem(fallback, problem=f"line {number} is not JSON")
        if not isinstance(row, dict):
            return SourceItem(fallback, problem=f"line {number} is not an object")
        image, given = row.get("image") or None, row.get("id")
        if isinstance(given, int) and not isinstance(given, bool):
            given = str(given)
        if given is not None and (not isinstance(given, str) or not given):
            return SourceItem(fallback, problem=f"line {number}: id must be a string that is not empty")
        if problem := _wrong(row):
            return SourceItem(_clean_id(given or fallback), problem=f"line {number}: {problem}")
        text = row.get("caption") or row.get("text")
        if image is None:
            return SourceItem(_clean_id(given or fallback), text=text)
        self.captions_left_out += bool(text)
        return SourceItem(_clean_id(given or image), image=self.file.parent / image)


def _wrong(row: dict[str, object]) -> str:
    """What makes a row no item, in the words of the client's `ingest`; empty where it is one."""
    for key in ("image", "text", "caption"):
        if not isinstance(row.get(key), str | None):
            return f"{key!r} is not text"
    text, caption = row.get("text"), row.get("caption")
    if not (row.get("image") or caption or text):
        empty = next((key for key in ("caption", "text") if row.get(key) is not None), None)
        return f"the {empty} is empty" if empty else "it has neither 'image' nor 'text' nor 'caption'"
    if caption and text and caption != text:
        return "it has both 'text' and 'caption', and they differ"
    return ""


def _listing(folder: Path, prefix: str, seen: set[tuple[int, int]]) -> Iterator[tuple[Path, str] | SourceItem]:
    """What lies in a folder, with its path below the root; nothing for a folder that was listed before."""
    try:
        status = folder.stat()
        if (status.st_dev, status.st_ino) in seen:
            return
        seen.add((status.st_dev, status.st_ino))
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone take the least memory
    except OSError as error:
        yield SourceItem(_clean_id(prefix.rstrip("/")), problem=f"the folder cannot be read: {error.strerror}")
        return
    for name in names:
        if not name.startswith("."):
            yield folder / name, prefix + name


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return stat.S_IFREG  # a broken link: if it is named like a picture, it is reported as unreadable


def _is_picture(path: Path) -> bool:
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return True
    try:
        with path.open("rb") as stream:
            return looks_like_image(path.name, stream.read(SNIFF_BYTES))
    except OSError:
        return False


def _clean_id(text: str) -> str:
    """Ids are written as UTF-8: undecodable bytes of a file name, and lone surrogates, become backslash escapes.

    So names that differ stay different, and `ingest` and `label` give the same ids.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
