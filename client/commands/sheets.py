"""Contact sheets that commands save."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from twinlens.client.client import Client
from twinlens.client.contact_sheet import contact_sheet
from twinlens.client.errors import TwinlensError
from twinlens.client.progress import print_line, stderr_console

_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_COLUMNS = 5


def check_sheet(out: Path) -> None:
    """Refuses a file that could not be written, before the work for it is done."""
    if out.suffix.lower() not in _SUFFIXES:
        raise typer.BadParameter(f"must end in one of {', '.join(_SUFFIXES)}", param_hint="--save-sheet")
    if not out.parent.is_dir():
        raise TwinlensError("NOT_FOUND", f"no such folder: {out.parent}")


def stored_picture(client: Client, collection: str, item_id: str) -> bytes:
    """An item's picture; empty where it has none, which a sheet shows as a grey cell."""
    return client.get_item(collection, item_id, include_image=True).image or b""


def save_sheet(rows: Sequence[tuple[str, Sequence[tuple[bytes, str]]]], out: Path) -> None:
    """Draws titled rows of pictures with captions, as `contact_sheet` takes them, and says where they are."""
    widest = max((len(cells) for _, cells in rows), default=1)
    try:
        contact_sheet(rows, columns=min(_COLUMNS, max(1, widest))).save(out)
    except OSError as error:
        raise TwinlensError("PERMISSION_DENIED", f"cannot write {out}: {error.strerror or error}") from None
    print_line(stderr_console(), f"contact sheet: {out}")
