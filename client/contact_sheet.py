"""A labelled grid of pictures: one titled row a query, the hits beside each other."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

_PAPER, _INK, _FAINT, _CELL, _BAD = (255, 255, 255), (24, 24, 27), (82, 82, 91), (244, 244, 245), (212, 212, 216)
_GAP = 12
_MAX_PIXELS = 50_000_000  # of one picture: a sheet shows thumbnails and must not be the end of a small machine


def contact_sheet(
    rows: Sequence[tuple[str, Sequence[tuple[bytes, str]]]],
    *,
    columns: int | None = None,
    cell: int = 224,
    font_size: int = 15,
) -> Image:
    """Draws a grid of captioned pictures.

    Args:
        rows: A title and its cells each: encoded picture and caption. A picture that cannot be drawn is a grey cell.
        columns: Cells a line, at least 1; a row with more goes on in the next line. None: as many as the longest row.
        cell: Width and height of a picture's place, in pixels, at least 32.
        font_size: Height of the captions' letters in pixels; titles are a third bigger.

    Returns:
        The sheet, RGB.

    Raises:
        ValueError: if `columns` or `cell` is too small.

    Example:
        >>> contact_sheet([("a cat", [(Path("cat.jpg").read_bytes(), "cat.jpg  0.31")])]).save("sheet.png")
    """
    from PIL import Image, ImageDraw  # noqa: PLC0415 - only this needs Pillow

    across = columns if columns is not None else max((len(cells) for _, cells in rows), default=1) or 1
    if across < 1 or cell < 32:
        raise ValueError(f"a sheet needs columns >= 1 and cell >= 32, not {across} and {cell}")
    title_font, caption_font = _font(font_size * 4 / 3), _font(font_size)
    title_height, caption_height = int(font_size * 2.2), int(font_size * 1.8)

    lines = [_chunks(cells, across) for _, cells in rows]
    line_height = cell + caption_height + _GAP
    height = _GAP + sum(title_height + max(1, len(row)) * line_height + _GAP for row in lines)
    width = _GAP + across * (cell + _GAP)
    sheet = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(sheet)

    top = _GAP
    for (title, _), row in zip(rows, lines, strict=True):
        draw.text((_GAP, top), _fit(draw, title, title_font, width - 2 * _GAP), fill=_INK, font=title_font)
        top += title_height
        for line in row:
            for column, (data, caption) in enumerate(line):
                left = _GAP + column * (cell + _GAP)
                _paste(sheet, draw, data, (left, top), cell)
                shown = _fit(draw, caption, caption_font, cell)
                draw.text((left, top + cell + 4), shown, fill=_FAINT, font=caption_font)
            top += line_height
        top += _GAP + (line_height if not row else 0)
    return sheet


def _font(size: float) -> FreeTypeFont | ImageFont:
    """A font of the machine that knows many scripts, or the one Pillow brings, which knows English."""
    from PIL import ImageFont  # noqa: PLC0415

    for name in ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial.ttf"):
        with contextlib.suppress(OSError):
            return ImageFont.truetype(name, size)
    return ImageFont.load_default(size=size)


def _chunks(cells: Sequence[tuple[bytes, str]], size: int) -> list[Sequence[tuple[bytes, str]]]:
    return [cells[start : start + size] for start in range(0, len(cells), size)]


def _paste(sheet: Image, draw: ImageDraw, data: bytes, corner: tuple[int, int], cell: int) -> None:
    left, top = corner
    picture = _thumbnail(data, cell)
    if picture is None:
        draw.rectangle((left, top, left + cell - 1, top + cell - 1), fill=_BAD)
        return
    draw.rectangle((left, top, left + cell - 1, top + cell - 1), fill=_CELL)
    sheet.paste(picture, (left + (cell - picture.width) // 2, top + (cell - picture.height) // 2))


def _thumbnail(data: bytes, side: int) -> Image | None:
    """The picture as it is shown, at most `side` wide and high; None where it cannot be drawn."""
    from PIL import Image, ImageOps  # noqa: PLC0415

    try:
        with Image.open(io.BytesIO(data)) as file:
            opened: Image.Image = file
            if file.width * file.height > _MAX_PIXELS and file.format != "JPEG":
                return None
            file.draft("RGB", (side * 2, side * 2))
            if opened.mode.startswith("I;16") or opened.mode == "I":
                opened = opened.point(lambda value: value / 256).convert("L")
            picture = ImageOps.exif_transpose(opened)
            if "A" in picture.getbands() or "transparency" in picture.info:
                clear = picture.convert("RGBA")
                picture = Image.new("RGBA", clear.size, (*_PAPER, 255))
                picture.alpha_composite(clear)
            picture = picture.convert("RGB")
            picture.thumbnail((side, side), Image.Resampling.LANCZOS)
            return picture
    except Exception:  # Pillow's decoders raise what they like, and one cell is not worth the sheet
        return None


def _fit(draw: ImageDraw, text: str, font: FreeTypeFont | ImageFont, width: int) -> str:
    """The text on one line, shortened in its middle until it fits: the ends of ids and scores tell most."""
    line = " ".join(text.split())[:2000]
    if draw.textlength(line, font=font) <= width:
        return line
    fits, too_long = 0, len(line)
    while too_long - fits > 1:
        keep = (fits + too_long) // 2
        if draw.textlength(_shortened(line, keep), font=font) <= width:
            fits = keep
        else:
            too_long = keep
    return _shortened(line, fits)


def _shortened(line: str, keep: int) -> str:
    return f"{line[: keep // 2]}…{line[len(line) - (keep - keep // 2) :]}"
