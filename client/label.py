"""Labels the pictures of a folder of any size, in the memory of a few messages."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twinlens.client.client import Client
from twinlens.client.label_types import NoneOfThese
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.progress import Progress
from twinlens.client.sinks import LabelRow, LabelSink, label_row
from twinlens.client.sources import FoundImage

NO_LABEL = "none of these"

_ROWS = 32  # written at a time


@dataclass(slots=True)
class LabelReport:
    """What became of the pictures.

    Attributes:
        labelled: How many were; also those that show none of the labels.
        failed: How many were not.
        counts: How often each label came first.
        none_of_these: How many show none of the labels.
        truncated: Labels, of those that came back, whose prompts were longer than the model's context.
        most_labels: How many labels came back for a picture, at most.
    """

    labelled: int = 0
    failed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    none_of_these: int = 0
    truncated: set[str] = field(default_factory=set)
    most_labels: int = 0

    @property
    def only_label(self) -> str | None:
        """The label that every picture got alone; None where there were others to choose from."""
        return next(iter(self.counts), None) if self.most_labels == 1 and not self.none_of_these else None


def label_images(
    client: Client,
    pictures: Iterable[FoundImage],
    labels: Sequence[str],
    sink: LabelSink,
    *,
    examples: PreparedExamples | None,
    label_set: str,
    templates: Sequence[str] | None,
    top_k: int,
    multi_label: bool,
    none_of_these: NoneOfThese | None,
    shown: Progress,
) -> LabelReport:
    """Labels pictures and writes one row each, in order; a picture that cannot be read is a row with an error.

    Args:
        client: Who labels.
        pictures: Read lazily.
        labels: To choose from; none where there are examples or a label set.
        sink: Takes the rows.
        examples: Label by these.
        label_set: Choose from this one; empty: from none.
        templates: Prompts around a label; None: the server's default.
        top_k: How many labels a picture; 0 means all.
        multi_label: Judge each label on its own.
        none_of_these: When no label fits.
        shown: Told of progress and of each failure.
    """
    report = LabelReport()
    under_way: deque[FoundImage] = deque()

    def paths() -> Iterator[Path]:
        for found in pictures:
            under_way.append(found)
            yield found.path

    def write(rows: list[LabelRow]) -> None:
        sink.write(rows)
        for row in rows:
            _count(report, row, shown)
        shown.advance(len(rows))
        rows.clear()

    rows: list[LabelRow] = []
    results = client.classify_stream(
        paths(),
        labels,
        examples=examples,
        label_set=label_set,
        templates=templates,
        top_k=top_k,
        multi_label=multi_label,
        none_of_these=none_of_these,
    )
    for result in results:
        report.truncated.update(score.label for score in result.scores if score.truncated)
        rows.append(label_row(under_way.popleft(), result))
        if len(rows) == _ROWS:
            write(rows)
    if rows:
        write(rows)
    return report


def _count(report: LabelReport, row: LabelRow, shown: Progress) -> None:
    report.most_labels = max(report.most_labels, len(row.labels))
    if row.error:
        report.failed += 1
        shown.say(f"not labelled: {row.id}: {row.error}")
        return
    report.labelled += 1
    if row.label is None:
        report.none_of_these += 1
    else:
        report.counts[row.label] += 1
