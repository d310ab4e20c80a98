"""Keeps the figures on a page those of the last run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.engines.report import sheets
from bench.measured_page import write_between_marks


def write_measured(page: Path, figures: Mapping[str, Any], picture: str | None) -> None:
    """Puts the tables between the two marks of a page.

    Args:
        page: Which one.
        figures: Of a run.
        picture: Its plot, as the page names it, if there is one.

    Raises:
        ValueError: the page lacks the marks.
    """
    head = (
        f"{figures['rows']:,} vectors of {figures['dimension']} dimensions, {figures['threads']} threads, "
        f"{figures['machine']}:"
    )
    parts = [head, *(sheet.markdown() for sheet in sheets(figures))]
    if picture is not None:
        parts.append(f"![Growth with the number of vectors, both axes logarithmic]({picture})")
    write_between_marks(page, "bench/index.py", "\n\n".join(parts))
