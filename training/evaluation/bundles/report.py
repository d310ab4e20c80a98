"""The report of an evaluation: evaluation.json for scripts, and report.html with its figures for people."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path

from twinlens.printable import printable
from twinlens.training.evaluation.bundles.figures import Sheet, draw
from twinlens.training.evaluation.bundles.report_files import JSON_FILE, PAGE_FILE, write_files
from twinlens.training.evaluation.bundles.results import Evaluation, Measure, SetResult
from twinlens.training.evaluation.page_parts import facts_table, numbers_table, page, picture

KINDS = {
    "retrieval": "retrieval",
    "zero_shot": "zero-shot and neighbours",
    "compositional": "right and wrong captions",
    "pairs": "pairs of pictures",
}


def write_report(found: Evaluation, out: Path) -> None:
    """Writes both files; what has the same names in the folder is replaced.

    Args:
        found: On a model.
        out: The folder, which is there.

    Raises:
        ConfigError: if the folder cannot be written to.
    """
    texts = {JSON_FILE: json.dumps(found.summary(), indent=2) + "\n", PAGE_FILE: report_page(found)}
    write_files(out, texts)


def report_page(found: Evaluation) -> str:
    """The page."""
    model = found.model
    title = printable(f"{model.name}/{model.version}")
    facts = [
        ("space", model.space_id),
        ("dimensions", str(model.dimension)),
        ("computed by", printable(model.computed_by)),
    ]
    body = [f"<h1>{html.escape(title)}</h1>", facts_table(facts)]
    for result in found.sets:
        body += _section(result)
    return page(title, body)


def shown(measure: Measure) -> tuple[str, str, str]:
    """A measure as people read it: what it is, its value, and what guessing gives."""
    chance = "" if measure.chance is None else f"{measure.chance:.{measure.digits}f}"
    return measure.told, f"{measure.value:.{measure.digits}f}", chance


def remarks(result: SetResult) -> Iterator[str]:
    """Lines on what was left out and what to know."""
    if result.unusable:
        first, reason = next(iter(result.unusable.items()))
        yield f"left out {len(result.unusable)} unusable item(s); the first is {first}: {reason}"
    yield from result.notes


def _section(result: SetResult) -> Iterator[str]:
    counts = ", ".join(f"{count:,} {what}" for what, count in result.counts.items())
    yield f"<h2>{_as_html(result.name)}: {KINDS[result.kind]}</h2>"
    yield f"<p>{_as_html(str(result.source))}: {counts}</p>"
    yield from (f"<p>{_as_html(line)}</p>" for line in remarks(result))
    rows = ([printable(each) for each in shown(measure)] for measure in result.measures)
    yield numbers_table(("measure", "value", "guessing"), rows)
    for figure in result.figures:
        if isinstance(figure, Sheet):
            yield f"<h3>{_as_html(figure.title)}</h3>"
        yield f"<p>{picture(draw(figure), printable(figure.title))}</p>"


def _as_html(text: str) -> str:
    """Names of files may hold bytes that are no text, which no page can hold either."""
    return html.escape(printable(text))
