"""`twinlens quantize`: int8 and fp16 files for a bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from twinlens.encoders.command_options import Models
from twinlens.encoders.find_bundle import DEFAULT_REPOSITORY
from twinlens.printable import printable
from twinlens.training.command_line import for_people, say
from twinlens.training.export.variants.options import Labels, Photos, Texts, parse_variants


def quantize(
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE",
            help="The bundle's folder, its address (s3://…/NAME/VERSION), or NAME or NAME/VERSION in --models; it is "
            "left as it is.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The new bundle's folder: new, or empty.")],
    photos: Photos = None,
    texts: Texts = None,
    labels: Labels = None,
    precision: Annotated[
        list[str] | None, typer.Option("--precision", metavar="NAME", help="int8 or fp16; repeatable. Default: int8.")
    ] = None,
    min_speedup: Annotated[
        float, typer.Option("--min-speedup", min=0.0, help="Least gain over fp32 worth an int8 file; 0: any.")
    ] = 1.1,
    version: Annotated[
        str | None,
        typer.Option("--version", help="The new bundle's version; default: DIR's last part if it is a number."),
    ] = None,
    repository: Models = DEFAULT_REPOSITORY,
    as_json: Annotated[bool, typer.Option("--json", help="Print what became of each file as JSON on stdout.")] = False,
) -> None:
    """Give a bundle int8 or fp16 files that find the same pictures; what fails the agreement gate is not written.

    The new bundle has the same space_id: an index stays valid. A third of the pictures and texts calibrates, the rest
    judges: mean cosine to fp32 at least 0.995, worst at least 0.98, recall@10 and zero-shot top-1 within half a point.
    Layers that int8 hurts too much stay in fp32. Ends with 1 if no file asked for passed; then nothing is written. The
    starter takes one to two minutes on two free CPUs, larger models longer.
    """
    with for_people():
        from twinlens.encoders.model_commands import locate
        from twinlens.encoders.progress import progress_on_stderr
        from twinlens.training.export.variants.add import add_variants, refuse_used
        from twinlens.training.export.variants.calibration import read_calibration

        wanted = parse_variants(precision or ["int8"])
        data = read_calibration(photos or (), texts, labels or ())
        refuse_used(out)
        report = add_variants(
            locate(bundle, repository),
            out,
            wanted,
            data,
            version=version or (out.name if out.name.isdecimal() else None),
            min_speedup=min_speedup,
            say=say,
            watch=progress_on_stderr,
        )
        if as_json:
            found = {"path": str(out) if report.manifest else None, "unreadable": report.unreadable}
            if report.manifest is not None:
                found["space_id"] = report.manifest.space_id
            typer.echo(json.dumps({**found, "files": [outcome.fields() for outcome in report.outcomes]}))
        else:
            for outcome in report.outcomes:
                typer.echo(outcome.line())
            if report.manifest is not None:
                of = report.manifest
                typer.echo(printable(f"{out}: {of.name}/{of.version}, space {of.space_id[:12]} as before"))
    if not report.written:
        raise typer.Exit(1)
