"""Commands about models and vectors: `models …`, `embed`, `doctor`."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import typer

from twinlens.encoders.command_options import Json, Models, ProviderOption, or_fail, print_json
from twinlens.encoders.errors import BundleError
from twinlens.encoders.find_bundle import DEFAULT_REPOSITORY
from twinlens.encoders.model_commands import locate, models
from twinlens.printable import printable

if TYPE_CHECKING:
    from twinlens.encoders.embed_sources import Source
    from twinlens.encoders.encoder import Encoder
    from twinlens.encoders.runtime import Provider, RunPrecision
    from twinlens.encoders.tuning import Measured

__all__ = ["doctor", "embed", "models"]

PrecisionOption = Annotated[
    Literal["fp32", "bf16", "fp16", "int8"],
    typer.Option(
        help="What it computes in: fp16 and int8 where the bundle has such files, bf16 with the provider openvino."
    ),
]

_FAILURES_SHOWN = 10


def embed(
    source: Annotated[
        str,
        typer.Argument(help="A folder, read recursively, or a .jsonl of rows with `image` or `caption` (or `text`)."),
    ],
    bundle: Annotated[
        str,
        typer.Option(
            "--bundle",
            help="The bundle's folder, its address (s3://…/NAME/VERSION), or NAME or NAME/VERSION in --models.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The file to write: .npz or .parquet.")],
    provider: ProviderOption = "auto",
    precision: PrecisionOption = "fp32",
    repository: Models = DEFAULT_REPOSITORY,
    batch: Annotated[int, typer.Option(min=1, max=1024, help="Items a run of the model.")] = 64,
    as_json: Json = False,
) -> None:
    """Embed a folder of pictures, or rows of pictures and texts, into a file of unit vectors.

    An item has one vector: of a row with both, the picture is embedded and the caption left out, which is said at the
    end. Exit code 0 when at least one item was embedded. What failed is listed in the file with its reason; texts
    longer than the model reads are cut, and marked there.
    """
    from twinlens.encoders.cpus import allowed_cpus
    from twinlens.encoders.embed_stream import embed_stream
    from twinlens.encoders.progress import progress_on_stderr
    from twinlens.encoders.vector_files import SUFFIXES, check_writable, write_vectors

    if out.suffix.lower() not in SUFFIXES:
        msg = f"{out} must end in {' or '.join(SUFFIXES)}"
        raise typer.BadParameter(msg, param_hint="--out")
    if out.is_dir():
        msg = f"cannot write {out}: it is a folder"
        raise click.ClickException(msg)
    started_s = time.monotonic()
    items = _open_source(source)
    try:
        check_writable(out)
    except OSError as error:
        msg = f"cannot write {out}: {error.strerror or error}"
        raise click.ClickException(msg) from error
    # Decoding and the towers run side by side and share the CPUs.
    decoders = max(1, allowed_cpus() // 2)
    threads = max(1, allowed_cpus() - decoders)
    encoder = or_fail(lambda: _load(locate(bundle, repository), provider, precision, threads))
    total = sum(1 for _ in items) if sys.stderr.isatty() else None
    results = []
    try:
        with progress_on_stderr("embedding", total) as progress:
            for result in embed_stream(encoder, items, batch=batch, decoders=decoders):
                progress.advance(failed=result.vector is None)
                results.append(result)
    except (BundleError, OSError) as error:
        msg = f"embedding {source} failed: {error}"
        raise click.ClickException(msg) from error
    if not results:
        raise click.ClickException(_nothing_found(source, items))
    try:
        write_vectors(out, results, encoder.manifest)
    except OSError as error:
        msg = f"cannot write {out}: {error.strerror or error}"
        raise click.ClickException(msg) from error
    failures = [result for result in results if result.vector is None]
    for result in failures[:_FAILURES_SHOWN]:
        typer.echo(printable(" ".join(f"failed: {result.id}: {result.reason}".split())), err=True)
    if len(failures) > _FAILURES_SHOWN:
        typer.echo(printable(f"… and {len(failures) - _FAILURES_SHOWN} more, listed in {out}"), err=True)
    facts = {
        "out": str(out),
        "model": f"{encoder.manifest.name}/{encoder.manifest.version}",
        "space_id": encoder.manifest.space_id,
        "variant": encoder.variant,
        "embedded": len(results) - len(failures),
        "failed": len(failures),
        "skipped": items.skipped,
        "captions_left_out": items.captions_left_out,
        "truncated": sum(result.truncated for result in results if result.vector is not None),
        "seconds": round(time.monotonic() - started_s, 3),
    }
    if as_json:
        print_json(facts)
    else:
        typer.echo(printable(_summary(facts)), err=True)
    if facts["embedded"] == 0:
        msg = f"none of the {len(results)} items in {source} could be embedded"
        raise click.ClickException(msg)


def doctor(
    bundle: Annotated[
        str | None, typer.Option(help="Also check where and in which precisions this bundle reproduces its vectors.")
    ] = None,
    repository: Models = DEFAULT_REPOSITORY,
    as_json: Json = False,
) -> None:
    """Show versions, devices and CPUs, and say what is missing and how to install it."""
    from twinlens.encoders.doctor import diagnose

    found = diagnose()
    checked = [] if bundle is None else _checked(bundle, repository)
    if as_json:
        print_json({**asdict(found), "bundle": [_parity_row(entry) for entry in checked]})
        return
    typer.echo(f"python           {found.python} on {found.platform}")
    typer.echo(f"CPUs             {found.cpus_allowed} allowed, {found.cpus_seen} seen")
    typer.echo(f"processor        {found.cpu}: {' '.join(found.cpu_features) or 'features not told'}")
    if not found.precisions:
        typer.echo("runs models on   nothing: no onnxruntime")
    for provider, precisions in found.precisions.items():
        typer.echo(f"runs models on   {provider}: {', '.join(precisions)}")
    typer.echo(f"FAISS devices    {found.faiss_gpus or 'none, the CPU is used'}")
    typer.echo(f"reads            {', '.join(found.image_formats)}")
    for name, version in found.packages.items():
        typer.echo(f"{name:<16} {version}")
    for line in found.advice:
        typer.echo(f"missing for {line}")
    for entry in checked:
        what = f"{entry.tower} tower, {entry.choice.precision} on {entry.choice.provider}"
        cosine = f"worst cosine to the trainer's vectors {entry.cosine:.6f}" if entry.cosine is not None else ""
        typer.echo(f"{what}: {entry.problem or cosine}")


def _checked(bundle: str, repository: str) -> list[Measured]:
    from twinlens.encoders.tuning import tune

    return or_fail(lambda: tune(locate(bundle, repository), batches=()))


def _parity_row(entry: Measured) -> dict[str, Any]:
    return {"tower": entry.tower, **asdict(entry.choice), "worst_cosine": entry.cosine, "problem": entry.problem}


def _load(bundle: Path, provider: Provider, precision: RunPrecision, threads: int) -> Encoder:
    from twinlens.encoders.encoder import Encoder

    return Encoder.load(bundle, provider=provider, precision=precision, threads=threads)


def _open_source(source: str) -> Source:
    from twinlens.encoders.embed_sources import FolderSource, JsonlSource

    path = Path(source)
    if path.is_dir():
        try:
            os.scandir(path).close()
        except OSError as error:
            msg = f"cannot open the folder {source}: {error.strerror}"
            raise click.ClickException(msg) from error
        return FolderSource(path)
    if not path.exists():
        msg = f"{source} does not exist"
        raise click.ClickException(msg)
    if path.suffix.lower() not in {".jsonl", ".ndjson"}:
        msg = f"{source} is neither a folder nor a .jsonl file"
        raise click.ClickException(msg)
    return JsonlSource(path)


def _summary(facts: dict[str, Any]) -> str:
    parts = [f"embedded {facts['embedded']} items"]
    if facts["truncated"]:
        parts.append(f"{facts['truncated']} texts longer than the model reads")
    if count := facts["captions_left_out"]:
        parts.append(f"{count} caption{'s' * (count != 1)} beside pictures left out")
    return f"{', '.join(parts)}, {facts['failed']} failed, {facts['skipped']} skipped, to {facts['out']}"


def _nothing_found(source: str, items: Source) -> str:
    if Path(source).is_dir():
        return f"no images in {source} ({items.skipped} other files)"
    return f"no rows in {source}"
