"""Commands about models and vectors: `models list|show|verify`, `embed`, `doctor`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import click
import typer

from twinlens.encoders.errors import BundleError, RuntimeUnavailable

if TYPE_CHECKING:
    from twinlens.encoders.embed_sources import Source
    from twinlens.encoders.encoder import Encoder
    from twinlens.encoders.manifest import Manifest
    from twinlens.encoders.runtime import Provider, RunPrecision

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Models = Annotated[str, typer.Option("--models", help="The model repository: a folder or an fsspec address.")]
Which = Annotated[str, typer.Argument(help="NAME, NAME/VERSION (newest if left out), or a bundle's folder.")]
ProviderOption = Annotated[
    Literal["auto", "cpu", "cuda", "openvino"],
    typer.Option(help="Where the model runs; auto takes CUDA where it is usable and onnxruntime's CPU otherwise."),
]
PrecisionOption = Annotated[
    Literal["fp32", "bf16", "fp16", "int8"],
    typer.Option(
        help="What it computes in: fp16 and int8 where the bundle has such files, bf16 with the provider openvino."
    ),
]

Result = TypeVar("Result")

_DEFAULT_REPOSITORY = "./models"
_FAILURES_SHOWN = 10

models = typer.Typer(no_args_is_help=True, help="List, show and verify model bundles.")


@models.command("list")
def list_models(repository: Models = _DEFAULT_REPOSITORY, as_json: Json = False) -> None:
    """List the bundles of a repository, oldest version first."""
    from twinlens.encoders.repository import ModelRepository

    try:
        listed = list(ModelRepository(repository).scan())
    except BundleError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        rows = [
            {
                "name": entry.name,
                "version": entry.version,
                "problem": entry.problem,
                **({} if entry.manifest is None else _summary(entry.manifest)),
            }
            for entry in listed
        ]
        _print_json(rows)
        return
    if not listed:
        typer.echo(f"no models in {repository}")
    for entry in listed:
        if entry.manifest is None:
            typer.echo(f"{entry.name}/{entry.version}  unreadable: {entry.problem}")
        else:
            facts = _summary(entry.manifest)
            typer.echo(
                f"{entry.name}/{entry.version}  space {facts['space_id'][:12]}  {facts['dimension']}-d  "
                f"{' + '.join(facts['towers'])}  {facts['megabytes']:.1f} MB"
            )


@models.command("show")
def show_model(which: Which, repository: Models = _DEFAULT_REPOSITORY, as_json: Json = False) -> None:
    """Show a bundle's manifest."""
    from twinlens.encoders.bundle import read_manifest

    manifest = _or_fail(lambda: read_manifest(_locate(which, repository)))
    if as_json:
        typer.echo(manifest.model_dump_json(indent=2))
        return
    for name, value in manifest.model_dump(mode="json", exclude={"files"}, exclude_defaults=True).items():
        typer.echo(
            f"{name}: {value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)}"
        )
    for entry in manifest.files:
        typer.echo(f"file: {entry.path}  {entry.size:,} bytes  sha256 {entry.sha256[:12]}")


@models.command("verify")
def verify_model(
    which: Which,
    repository: Models = _DEFAULT_REPOSITORY,
    provider: ProviderOption = "auto",
    precision: PrecisionOption = "fp32",
    as_json: Json = False,
) -> None:
    """Check a bundle's digests, then re-embed its parity inputs from raw bytes and compare."""
    from twinlens.encoders.bundle import read_manifest, verify_digests
    from twinlens.encoders.encoder import Encoder

    def verify() -> dict[str, Any]:
        folder = _locate(which, repository)
        manifest = read_manifest(folder)
        verify_digests(folder, manifest)
        encoder = Encoder.load(folder, provider=provider, precision=precision, verify=False)
        report = encoder.verify(folder)
        return {
            "model": f"{manifest.name}/{manifest.version}",
            "space_id": manifest.space_id,
            "provider": encoder.provider,
            "precision": dict(encoder.precisions),
            "variant": encoder.variant,
            "files": len(manifest.files),
            "worst_cosine": {"image": report.image, "text": report.text},
        }

    facts = _or_fail(verify)
    if as_json:
        _print_json(facts)
        return
    cosines = ", ".join(f"{tower} {c:.6f}" for tower, c in facts["worst_cosine"].items() if c is not None)
    typer.echo(
        f"{facts['model']} is sound: {facts['files']} files match their digests; "
        f"worst cosine to the trainer's vectors ({facts['variant']}): {cosines}"
    )


def embed(
    source: Annotated[str, typer.Argument(help="A folder, read recursively, or a .jsonl of rows with image or text.")],
    bundle: Annotated[Path, typer.Option("--bundle", help="The bundle's folder.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write: .npz or .parquet.")],
    provider: ProviderOption = "auto",
    precision: PrecisionOption = "fp32",
    batch: Annotated[int, typer.Option(min=1, max=1024, help="Items a run of the model.")] = 64,
    as_json: Json = False,
) -> None:
    """Embed a folder of pictures, or rows of pictures and texts, into a file of unit vectors.

    Exit code 0 when at least one item was embedded. What failed is listed in the file with its reason; texts longer
    than the model reads are cut, and marked there.
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
    encoder = _or_fail(lambda: _load(bundle, provider, precision, threads=max(1, allowed_cpus() - decoders)))
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
        typer.echo(f"failed: {result.id}: {result.reason}", err=True)
    if len(failures) > _FAILURES_SHOWN:
        typer.echo(f"… and {len(failures) - _FAILURES_SHOWN} more, listed in {out}", err=True)
    facts = {
        "out": str(out),
        "model": f"{encoder.manifest.name}/{encoder.manifest.version}",
        "space_id": encoder.manifest.space_id,
        "variant": encoder.variant,
        "embedded": len(results) - len(failures),
        "failed": len(failures),
        "skipped": items.skipped,
        "truncated": sum(result.truncated for result in results if result.vector is not None),
        "seconds": round(time.monotonic() - started_s, 3),
    }
    if as_json:
        _print_json(facts)
    else:
        cut = f", {facts['truncated']} texts longer than the model reads" if facts["truncated"] else ""
        typer.echo(
            f"embedded {facts['embedded']} items{cut}, {facts['failed']} failed, {facts['skipped']} skipped, to {out}",
            err=True,
        )
    if facts["embedded"] == 0:
        msg = f"none of the {len(results)} items in {source} could be embedded"
        raise click.ClickException(msg)


def doctor(as_json: Json = False) -> None:
    """Show versions, devices and CPUs, and say what is missing and how to install it."""
    from twinlens.encoders.doctor import diagnose

    found = diagnose()
    if as_json:
        _print_json(asdict(found))
        return
    typer.echo(f"python           {found.python} on {found.platform}")
    typer.echo(f"CPUs             {found.cpus_allowed} allowed, {found.cpus_seen} seen")
    typer.echo(f"runs models on   {', '.join(found.providers) or 'nothing: no onnxruntime'}")
    typer.echo(f"FAISS devices    {found.faiss_gpus or 'none, the CPU is used'}")
    typer.echo(f"reads            {', '.join(found.image_formats)}")
    for name, version in found.packages.items():
        typer.echo(f"{name:<16} {version}")
    for line in found.advice:
        typer.echo(f"missing for {line}")


def _or_fail(action: Callable[[], Result]) -> Result:
    try:
        return action()
    except (BundleError, RuntimeUnavailable) as error:
        raise click.ClickException(str(error)) from error


def _load(bundle: Path, provider: Provider, precision: RunPrecision, threads: int) -> Encoder:
    from twinlens.encoders.encoder import Encoder

    return Encoder.load(bundle, provider=provider, precision=precision, threads=threads)


def _locate(which: str, repository: str) -> Path:
    """A bundle's folder, given itself or by name in a repository."""
    from twinlens.encoders.manifest import MANIFEST_NAME
    from twinlens.encoders.repository import ModelRepository

    if (Path(which) / MANIFEST_NAME).is_file():
        return Path(which)
    name, _, version = which.partition("/")
    if not name or "/" in version:
        msg = f"no bundle at {which}: it has no {MANIFEST_NAME}"
        raise BundleError(msg)
    return ModelRepository(repository).fetch(name, version or None)


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


def _nothing_found(source: str, items: Source) -> str:
    if Path(source).is_dir():
        return f"no images in {source} ({items.skipped} other files)"
    return f"no rows in {source}"


def _summary(manifest: Manifest) -> dict[str, Any]:
    towers = [name for name, tower in (("image", manifest.image), ("text", manifest.text)) if tower is not None]
    return {
        "space_id": manifest.space_id,
        "dimension": manifest.dimension,
        "towers": towers,
        "megabytes": sum(entry.size for entry in manifest.files) / 1e6,
        "description": manifest.description,
    }


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
