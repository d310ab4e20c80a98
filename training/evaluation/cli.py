"""`twinlens probe`: what an image encoder has learnt, on labelled pictures."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinlens.client.commands.options import AsJson
from twinlens.printable import printable
from twinlens.training.command_line import for_people, named_path, say
from twinlens.training.data.pictures_there import check_pictures_there
from twinlens.training.run_checkpoint import checkpoint_of

if TYPE_CHECKING:
    from twinlens.training.evaluation.probe import ProbeResult


def probe(
    source: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT|RUN", help="What `twinlens train METHOD` wrote: the file or its folder."),
    ],
    train: Annotated[
        Path,
        typer.Option(
            "--train",
            metavar="PATH",
            parser=named_path,
            help="Labelled pictures: a folder per class, a list, or shards.",
        ),
    ],
    test: Annotated[
        Path | None,
        typer.Option(
            "--test",
            metavar="PATH",
            parser=named_path,
            help="Held-out ones. Default: a fifth of every class of --train.",
        ),
    ] = None,
    low_shot: Annotated[
        bool, typer.Option("--low-shot", help="Also fine-tune on 1 % and on 10 % of the training pictures (minutes).")
    ] = False,
    maps: Annotated[
        bool, typer.Option("--map", help="Also draw the test pictures where their embeddings lie.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write a report here: report.html, probe.json, and the pictures."),
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Neighbours that vote.")] = 20,
    temperature: Annotated[float, typer.Option(min=0.001, help="Of the neighbours' weights.")] = 0.07,
    limit: Annotated[int | None, typer.Option(min=2, help="Take at most so many pictures of either.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of every random choice.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure what an image encoder has learnt: nearest neighbours, a linear probe, few-shot fine-tuning, its maps."""
    from twinlens.client.commands.output import print_json
    from twinlens.training.errors import ConfigError

    with for_people(), ExitStack() as around:
        if maps and out is None:
            raise ConfigError("--map draws pictures: name a folder for them with --out")
        if out is not None and out.exists() and not out.is_dir():
            raise ConfigError(f"{out} is a file; name a folder for the report")
        checkpoint_of(source)
        for pictures in (train, *([] if test is None else [test])):
            check_pictures_there(pictures)
        from twinlens.training.evaluation.probe import SHARES, ProbeRequest
        from twinlens.training.evaluation.probe import probe as run
        from twinlens.training.evaluation.report_folder import read_run, write_report
        from twinlens.training.made_folder import made_folder
        from twinlens.training.progress import lines_or_bar

        if out is not None:
            # Now: that a folder cannot be made, or a table not be read, is no news for after minutes of work.
            around.enter_context(made_folder(out))
            left = read_run(source)
        request = ProbeRequest(
            source=source,
            train=train,
            test=test,
            shares=SHARES if low_shot else (),
            k=k,
            temperature=temperature,
            limit=limit,
            seed=seed,
        )
        probed = run(request, lines_or_bar)
        if out is not None:
            write_report(probed, left, out, maps=maps, seed=seed)
    if as_json:
        print_json(probed.result.summary())
        return
    _tell(probed.result, out)


def _tell(result: ProbeResult, out: Path | None) -> None:
    from rich.table import Table

    from twinlens.client.commands.output import print_table
    from twinlens.training.data.picture_set import left_out
    from twinlens.training.evaluation.report import measures

    for line in left_out(result.unreadable):
        say(line)
    table = Table("measure", "value")
    for name, value in measures(result):
        table.add_row(name, value)
    print_table(table)
    if out is not None:
        typer.echo(printable(str(out / "report.html")))
