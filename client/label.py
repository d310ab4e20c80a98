"""Labels the pictures of a folder of any size, in the memory of a few batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from twinlens.client.client import Client
from twinlens.client.pipeline import in_order
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.progress import Progress
from twinlens.client.sinks import LabelRow, LabelSink, label_row
from twinlens.client.sources import FoundImage
from twinlens.client.split import split

_BATCH = 32
_IN_FLIGHT = 4


@dataclass(slots=True)
class LabelReport:
    """What became of the pictures.

    Attributes:
        labelled: How many were.
        failed: How many were not.
        counts: How often each label came first.
        truncated: Labels, of those that came back, whose prompts were longer than the model's context.
        most_labels: How many labels came back for a picture, at most.
    """

    labelled: int = 0
    failed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    truncated: set[str] = field(default_factory=set)
    most_labels: int = 0

    @property
    def only_label(self) -> str | None:
        """The label that every picture got alone; None where there were others to choose from."""
        return next(iter(self.counts), None) if self.most_labels == 1 else None


def label_images(
    client: Client,
    pictures: Iterable[FoundImage],
    labels: Sequence[str],
    sink: LabelSink,
    *,
    examples: PreparedExamples | None,
    templates: Sequence[str] | None,
    top_k: int,
    multi_label: bool,
    shown: Progress,
) -> LabelReport:
    """Labels pictures and writes one row each, in order; a picture that cannot be read is a row with an error.

    Args:
        client: Who labels.
        pictures: Read lazily.
        labels: To choose from; none where there are examples.
        sink: Takes the rows.
        examples: Label by these.
        templates: Prompts around a label; None: the server's default.
        top_k: How many labels a picture; 0 means all.
        multi_label: Judge each label on its own.
        shown: Told of progress and of each failure.
    """
    report = LabelReport()

    def work(batch: list[FoundImage]) -> list[LabelRow]:
        results = client.classify(
            [found.path for found in batch],
            labels,
            examples=examples,
            templates=templates,
            top_k=top_k,
            multi_label=multi_label,
        )
        report.truncated.update(score.label for result in results for score in result.scores if score.truncated)
        return [label_row(found, result) for found, result in zip(batch, results, strict=True)]

    batches = split(pictures, lambda _: 0, max_count=_BATCH, max_bytes=1)
    for rows in in_order(work, batches, workers=_IN_FLIGHT):
        sink.write(rows)
        report.most_labels = max(report.most_labels, *(len(row.labels) for row in rows))
        for row in rows:
            if row.label is None:
                report.failed += 1
                shown.say(f"not labelled: {row.id}: {row.error}")
            else:
                report.labelled += 1
                report.counts[row.label] += 1
        shown.advance(len(rows))
    return report
