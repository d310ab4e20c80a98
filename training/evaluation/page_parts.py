"""What HTML pages of this room are made of; a page needs nothing beside it."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
       color: #1b1b1b; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; background: #fff; }
pre { background: #f4f4f4; padding: .8rem; overflow-x: auto; }
meter { width: 10rem; }
"""


def page(title: str, body: Iterable[str]) -> str:
    """A whole page.

    Args:
        title: As text.
        body: Its parts, as HTML.
    """
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def facts_table(rows: Sequence[tuple[str, str]]) -> str:
    """Names and values, as texts."""
    cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>"


def numbers_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    lines = []
    for first, *numbers in rows:
        cells = "".join(f'<td class="number">{html.escape(number)}</td>' for number in numbers)
        lines.append(f"<tr><td>{html.escape(first)}</td>{cells}</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def shares_table(shares: Mapping[str, float]) -> str:
    """Names with their shares as bars, the largest first."""
    cells = "".join(
        f'<tr><td>{html.escape(name)}</td><td><meter value="{share:.4f}"></meter></td>'
        f'<td class="number">{share:.3f}</td></tr>'
        for name, share in sorted(shares.items(), key=lambda item: -item[1])
    )
    return f"<table>{cells}</table>"


def picture(data: bytes, name: str) -> str:
    """A picture inside the page: a PNG or JPEG file."""
    kind = "jpeg" if data.startswith(b"\xff\xd8") else "png"
    return f'<img alt="{html.escape(name)}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'
