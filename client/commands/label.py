"""`twinlens label`: the pictures of a folder, labelled by text alone or by examples."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from twinlens.client.commands.label_by import RuleName, label_by
from twinlens.client.commands.options import AsJson, BundleAlone, Local, Server
from twinlens.client.commands.output import passed_over, print_json, print_table
from twinlens.client.commands.word_options import (
    Background,
    Labels,
    LabelsFile,
    MinCosine,
    MinProbability,
    MultiLabel,
    Template,
    none_of_these,
)
from twinlens.client.connect import connect
from twinlens.client.errors import TwinlensError
from twinlens.client.label import NO_LABEL, label_images
from twinlens.client.progress import print_line, progress, stderr_console
from twinlens.client.sinks import LabelRow, LabelSink, check_out, jsonl_line, open_sink
from twinlens.client.sources import Skipped, walk_images
from twinlens.client.tables import count_table
from twinlens.printable import printable, printable_json


def label(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Read recursively; or a single picture.")],
    labels: Labels = None,
    labels_file: LabelsFile = None,
    label_set: Annotated[
        str | None,
        typer.Option("--label-set", metavar="NAME", help="Labels kept under a name; see `twinlens labelsets put`."),
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option(
            "--examples",
            metavar="DIR|FILE",
            help="Label by pictures instead of words: a folder with a sub-folder for each label, or with a "
            "labels.jsonl; or such a list, whose rows have `image` and `label`.",
        ),
    ] = None,
    examples_collection: Annotated[
        str | None,
        typer.Option(
            "--examples-collection", metavar="NAME", help="Label by the pictures of a collection; see --label-key."
        ),
    ] = None,
    label_key: Annotated[
        str | None,
        typer.Option("--label-key", metavar="KEY", help="The key of the items' metadata that holds their label."),
    ] = None,
    rule: Annotated[
        RuleName | None,
        typer.Option(
            "--rule",
            help="With examples: compare with the mean of each label's (prototype), or let the nearest vote (knn). "
            "Default: prototype.",
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("--k", metavar="N", min=1, max=10_000, help="With --rule knn: how many vote. Default: 20."),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0.001, max=100.0, help="With examples: lower means surer. Default: 0.07."),
    ] = None,
    text_weight: Annotated[
        float | None,
        typer.Option(
            "--text-weight",
            min=0.0,
            max=1.0,
            help="With --rule prototype: how much of a label's words is mixed in. Default: 0.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Where the labels go: .parquet, .csv or .jsonl. Default: lines of id, label, probability, cosine on "
            "stdout.",
        ),
    ] = None,
    template: Template = None,
    multi_label: MultiLabel = False,
    min_cosine: MinCosine = None,
    min_probability: MinProbability = None,
    background: Background = None,
    top_k: Annotated[
        int, typer.Option("--top-k", "-k", min=0, help="How many labels a picture in column `labels`; 0 means all.")
    ] = 5,
    server: Server = None,
    local: Local = None,
    bundle: BundleAlone = None,
    as_json: AsJson = False,
) -> None:
    """Label the pictures of FOLDER by text alone (zero-shot) or by examples, one row a picture.

    Columns: id (the path below FOLDER), path, label, probability, cosine, labels (the best --top-k of them),
    none_of_these, error. Where none of the labels fits (--min-cosine, --min-probability, --background), label is empty
    and `labels` tells the best all the same.
    Pictures that cannot be read are rows with an error; the exit code is 0 if at least one picture was labelled.
    No collection is needed: --bundle alone will do, and a --local folder that is missing is made if --bundle is given.
    Models of pictures alone label by examples.
    """
    skipped = Skipped()
    none = none_of_these(min_cosine, min_probability, background)
    by = label_by(
        labels=labels,
        labels_file=labels_file,
        label_set=label_set,
        examples=examples,
        collection=examples_collection,
        label_key=label_key,
        rule=rule,
        k=k,
        temperature=temperature,
        text_weight=text_weight,
        templates=template,
        multi_label=multi_label,
        none_of_these=none,
        skipped=skipped,
    )
    if out is not None:
        try:
            check_out(out)
        except TwinlensError as error:
            raise typer.BadParameter(error.message, param_hint="--out") from None
    pictures = walk_images(folder, skipped)
    first = next(pictures, None)
    if first is None:
        raise TwinlensError("NOT_FOUND", f"no pictures in {folder}")
    opened = open_sink(out) if out is not None else _stdout_sink(as_json)
    with (
        # No deadline: before the first picture the server embeds all prompts, which may be tens of thousands.
        connect(
            server,
            local,
            bundle,
            create=bundle is not None and by.needs_no_data,
            alone=by.needs_no_data,
            way_out=by.way_out,
            timeout_s=None,
        ) as client,
        opened as sink,
        progress("labelled", lambda: sum(1 for _ in walk_images(folder))) as shown,
    ):
        model = client.model().info  # first: nothing that is only told at the end may cost the labels
        prepared = by.prepare(client, shown.say)
        report = label_images(
            client,
            chain([first], pictures),
            by.labels,
            sink,
            examples=prepared,
            label_set=by.label_set,
            templates=template,
            top_k=top_k,
            multi_label=multi_label,
            none_of_these=none,
            shown=shown,
        )
        if not report.labelled:  # within the block, so that a file of errors never replaces one of labels
            raise TwinlensError(
                "INVALID_ARGUMENT", f"no picture in {folder} could be labelled: {report.failed:,} failed"
            )
    if out is not None and as_json:
        print_json(
            {
                "out": str(out),
                "model": f"{model.name}/{model.version}",
                "labelled": report.labelled,
                "failed": report.failed,
                "none_of_these": report.none_of_these,
                "skipped_files": skipped.files,
                "truncated_labels": sorted(report.truncated),
                # Of a collection the server alone knows how many items have a label.
                "examples": None
                if prepared is None or examples is None
                else {"used": prepared.used, "failed": len(prepared.errors)},
                "labels": dict(report.counts.most_common()),
            }
        )
    elif out is not None:
        counts = dict(report.counts)
        if report.none_of_these:
            counts[NO_LABEL] = counts.get(NO_LABEL, 0) + report.none_of_these
        print_table(count_table(f"{report.labelled:,} labelled, {report.failed:,} failed: {out}", counts))
    print_line(stderr_console(), f"labelled with {model.name}/{model.version}")
    only = by.only_label or (report.only_label if top_k != 1 else None)
    if only is not None and not (multi_label or by.label_set or none is not None):
        print_line(stderr_console(), f"there is only one label, {only}: every picture gets it, whatever it shows")
    if report.truncated:
        print_line(stderr_console(), f"labels longer than the model reads, which were cut: {len(report.truncated):,}")
    if left_out := passed_over(skipped):
        print_line(stderr_console(), left_out)


@contextmanager
def _stdout_sink(as_json: bool) -> Iterator[LabelSink]:
    yield _StdoutJson() if as_json else _StdoutLines()


class _StdoutLines:
    def write(self, rows: Sequence[LabelRow]) -> None:
        for row in rows:
            if row.labels:
                best = row.labels[0]
                label = NO_LABEL if row.none_of_these else best["label"]
                sys.stdout.write(
                    f"{printable(row.id)}\t{printable(label)}\t{best['probability']:.4f}\t{best['cosine']:.4f}\n"
                )
        sys.stdout.flush()


class _StdoutJson:
    def write(self, rows: Sequence[LabelRow]) -> None:
        sys.stdout.writelines(printable_json(jsonl_line(row)) for row in rows)
        sys.stdout.flush()
