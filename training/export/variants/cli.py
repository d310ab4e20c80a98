"""`twinlens quantize`: int8 and fp16 files for a bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from twinlens.training.command_line import for_people


def quantize(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The bundle's folder; it is left as it is.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The new bundle's folder: new, or empty.")],
    photos: Annotated[
        list[Path] | None,
        typer.Option(
            "--photos",
            metavar="FOLDER",
            help="Some hundred pictures like yours, with a captions.jsonl (rows of image, caption) or not. Repeatable.",
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option("--texts", metavar="FILE", help="Texts like yours: one a line, or JSONL with caption or text."),
    ] = None,
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            "--labels",
            metavar="FOLDER",
            help="Labelled pictures: a subfolder for each class, or a labels.jsonl (rows of image, label). Repeatable.",
        ),
    ] = None,
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
    as_json: Annotated[bool, typer.Option("--json", help="Print what became of each file as JSON on stdout.")] = False,
) -> None:
    """Give a bundle int8 or fp16 files that find the same pictures; what fails the agreement gate is not written.

    The new bundle has the same space_id: an index stays valid. A third of the pictures and texts calibrates, the rest
    judges: mean cosine to fp32 at least 0.995, worst at least 0.98, recall@10 and zero-shot top-1 within half a point.
    Layers that int8 hurts too much stay in fp32. Ends with 1 if no file asked for passed; then nothing is written.
    """
    with for_people():
        from twinlens.training.export.variants.add import add_variants
        from twinlens.training.export.variants.calibration import read_calibration

        wanted = [_precision(name) for part in precision or ["int8"] for name in part.split(",")]
        data = read_calibration(photos or (), texts, labels or ())
        report = add_variants(
            bundle,
            out,
            wanted,
            data,
            version=version or (out.name if out.name.isdecimal() else None),
            min_speedup=min_speedup,
            say=lambda line: typer.echo(line, err=True),
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
                typer.echo(f"{out}: {of.name}/{of.version}, space {of.space_id[:12]} as before")
    if not report.written:
        raise typer.Exit(1)


def _precision(name: str) -> Literal["int8", "fp16"]:
    if name not in {"int8", "fp16"}:
        raise typer.BadParameter(f"there is no variant {name!r}: int8 and fp16 can be made")
    return "int8" if name == "int8" else "fp16"
