"""Keeps the figures on a page those of the last run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.engines.report import sheets

_BEGIN = "<!-- measured: written by bench/index.py -->"
_END = "<!-- end of measured -->"


def write_measured(page: Path, figures: Mapping[str, Any]) -> None:
    """Puts the tables between the two marks of a page.

    Raises:
        ValueError: the page lacks the marks.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{page.name} lacks the marks {_BEGIN} and {_END}")
    measured = "\n\n".join(sheet.markdown() for sheet in sheets(figures))
    page.write_text(f"{before}{begin}\n\n{measured}\n\n{end}{after}", encoding="utf-8")
