"""Keeps the figures on a page those of the last run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.engines.report import sheets

_BEGIN = "<!-- measured: written by bench/index.py -->"
_END = "<!-- end of measured -->"


def write_measured(page: Path, figures: Mapping[str, Any], picture: str | None) -> None:
    """Puts the tables between the two marks of a page.

    Args:
        page: Which one.
        figures: Of a run.
        picture: Its plot, as the page names it, if there is one.

    Raises:
        ValueError: the page lacks the marks.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{page.name} lacks the marks {_BEGIN} and {_END}")
    head = (
        f"{figures['rows']:,} vectors of {figures['dimension']} dimensions, {figures['threads']} threads, "
        f"{figures['machine']}:"
    )
    parts = [head, *(sheet.markdown() for sheet in sheets(figures))]
    if picture is not None:
        parts.append(f"![Growth with the number of vectors, both axes logarithmic]({picture})")
    measured = "\n\n".join(parts)
    page.write_text(f"{before}{begin}\n\n{measured}\n\n{end}{after}", encoding="utf-8")
