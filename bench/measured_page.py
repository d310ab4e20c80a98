"""Pages whose figures a script writes."""

from __future__ import annotations

from pathlib import Path


def write_between_marks(page: Path, by: str, measured: str) -> None:
    """Puts what was measured between the two marks of a page.

    Args:
        page: Which one.
        by: The script, as the first mark names it, such as `bench/index.py`.
        measured: Markdown.

    Raises:
        ValueError: the page lacks the marks.
    """
    first, last = f"<!-- measured: written by {by} -->", "<!-- end of measured -->"
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{page.name} lacks the marks {first} and {last}")
    page.write_text(f"{before}{begin}\n\n{measured}\n\n{end}{after}", encoding="utf-8")
