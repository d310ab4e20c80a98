"""`twinlens labelsets`: labels and how to ask for them, kept under names."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from twinlens.client.commands.options import AsJson, Bundle, Local, Server
from twinlens.client.commands.output import count_of, print_json, print_table
from twinlens.client.commands.word_options import (
    Background,
    Labels,
    LabelsFile,
    MinCosine,
    MinProbability,
    MultiLabel,
    Template,
    none_of_these,
    words,
)
from twinlens.client.connect import connect
from twinlens.client.label_types import LabelSet, NoneOfThese
from twinlens.client.tables import new_table, plain
from twinlens.printable import printable

label_sets = typer.Typer(
    name="labelsets",
    help="Keep labels and how to ask for them under a name, for `twinlens label --label-set NAME` and for programs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

LabelSetName: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The label set's name.")]


@label_sets.command()
def put(
    name: LabelSetName,
    labels: Labels = None,
    labels_file: LabelsFile = None,
    template: Template = None,
    multi_label: MultiLabel = False,
    min_cosine: MinCosine = None,
    min_probability: MinProbability = None,
    background: Background = None,
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    as_json: AsJson = False,
) -> None:
    """Keep labels under NAME, embedded once; replaces a label set of that name."""
    if (labels is None) == (labels_file is None):
        raise typer.BadParameter("give the labels in one way: --labels a,b,c or --labels-file FILE")
    given = words(labels, labels_file)
    none = none_of_these(min_cosine, min_probability, background)
    with connect(server, local, bundle, create=bundle is not None) as client:
        made = client.put_label_set(name, given, templates=template, multi_label=multi_label, none_of_these=none)
    if as_json:
        print_json(_plain(made))
    else:
        typer.echo(f"kept {made.id}: {count_of(len(made.labels), 'label', 'labels')}")


@label_sets.command("list")
def list_(server: Server = None, local: Local = None, bundle: Bundle = None, as_json: AsJson = False) -> None:
    """List the label sets."""
    with connect(server, local, bundle) as client:
        found = client.list_label_sets()
    if as_json:
        print_json({"label_sets": [_plain(each) for each in found]})
        return
    if not found:
        typer.echo("no label sets")
        return
    table = new_table("Label sets")
    table.add_column("name", overflow="fold")
    table.add_column("labels", justify="right")
    table.add_column("templates", justify="right")
    table.add_column("none of these", overflow="fold")
    table.add_column("updated")
    for each in found:
        table.add_row(
            plain(each.id),
            f"{len(each.labels):,}",
            f"{len(each.templates) or 1:,}",
            plain(_when(each.none_of_these)),
            f"{each.update_time:%Y-%m-%d %H:%M} UTC",
        )
    print_table(table)


@label_sets.command()
def show(
    name: LabelSetName, server: Server = None, local: Local = None, bundle: Bundle = None, as_json: AsJson = False
) -> None:
    """Show a label set: what it asks with, and its labels, one a line."""
    with connect(server, local, bundle) as client:
        found = client.get_label_set(name)
    if as_json:
        print_json(_plain(found))
        return
    for template in found.templates:
        typer.echo(printable(f"template: {template}"))
    if found.multi_label:
        typer.echo("each label is judged on its own")
    if found.none_of_these != NoneOfThese():
        typer.echo(printable(f"none of these: {_when(found.none_of_these)}"))
    for label in found.labels:
        typer.echo(printable(label))


@label_sets.command()
def delete(name: LabelSetName, server: Server = None, local: Local = None, bundle: Bundle = None) -> None:
    """Delete a label set."""
    with connect(server, local, bundle) as client:
        client.delete_label_set(name)
    typer.echo(f"deleted {name}")


def _when(none: NoneOfThese) -> str:
    """When no label fits, in a few words."""
    parts = []
    if none.min_cosine is not None:
        parts.append(f"cosine below {none.min_cosine:.4g}")
    if none.min_probability is not None:
        parts.append(f"probability below {none.min_probability:.4g}")
    if none.background:
        parts.append(f"nearer to {', '.join(map(repr, none.background))}")
    return "; or ".join(parts)


def _plain(each: LabelSet) -> dict[str, object]:
    """All of it: a label set as text leaves its labels out."""
    return {
        "id": each.id,
        "labels": each.labels,
        "templates": each.templates,
        "multi_label": each.multi_label,
        "none_of_these": each.none_of_these,
        "create_time": each.create_time,
        "update_time": each.update_time,
    }
