"""The commands `models list|show|verify|push`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import typer

from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.command_options import Json, Models, ProviderOption, or_fail, print_json
from twinlens.encoders.errors import BundleError, RuntimeUnavailable
from twinlens.encoders.find_bundle import DEFAULT_REPOSITORY, find_bundle
from twinlens.encoders.manifest import Manifest, weights_beside
from twinlens.encoders.progress import bytes_on_stderr
from twinlens.encoders.repository import ModelRepository
from twinlens.printable import printable, printable_json

if TYPE_CHECKING:
    from twinlens.encoders.runtime import RunPrecision

Which = Annotated[
    str,
    typer.Argument(help="A bundle's folder, its address (s3://…/NAME/VERSION), or NAME or NAME/VERSION in --models."),
]

models = typer.Typer(no_args_is_help=True, help="List, show, verify and push model bundles.")


@models.command("list")
def list_models(repository: Models = DEFAULT_REPOSITORY, as_json: Json = False) -> None:
    """List the bundles of a repository, oldest version first."""
    listed = or_fail(lambda: list(ModelRepository(repository).scan()))
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
        print_json(rows)
        return
    if not listed:
        typer.echo(printable(f"no models in {repository}"))
    for entry in listed:
        if entry.manifest is None:
            typer.echo(printable(f"{entry.name}/{entry.version}  unreadable: {entry.problem}"))
        else:
            facts = _summary(entry.manifest)
            typer.echo(
                f"{entry.name}/{entry.version}  space {facts['space_id'][:12]}  {facts['dimension']}-d  "
                f"{' + '.join(facts['towers'])}  {facts['megabytes']:.1f} MB"
            )


@models.command("show")
def show_model(which: Which, repository: Models = DEFAULT_REPOSITORY, as_json: Json = False) -> None:
    """Show a bundle's manifest."""
    manifest = or_fail(lambda: read_manifest(locate(which, repository)))
    if as_json:
        typer.echo(printable_json(manifest.model_dump_json(indent=2)))
        return
    for name, value in manifest.model_dump(mode="json", exclude={"files"}, exclude_defaults=True).items():
        told = value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)
        typer.echo(printable(f"{name}: {told}"))
    for entry in manifest.files:
        typer.echo(f"file: {entry.path}  {entry.size:,} bytes  sha256 {entry.sha256[:12]}")


@models.command("verify")
def verify_model(
    which: Which,
    repository: Models = DEFAULT_REPOSITORY,
    provider: ProviderOption = "auto",
    precision: Annotated[
        Literal["fp32", "bf16", "fp16", "int8"] | None,
        typer.Option(help="Check this one only; default: each one the bundle has a file for."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a bundle's manifest, files and digests, then re-embed its parity inputs from raw bytes and compare.

    Every precision in the bundle is run. Exit code 0 only if all of it is sound; with --json what is wrong is also
    under "problem".
    """
    try:
        facts = _verify(which, repository, provider, precision)
    except (BundleError, RuntimeUnavailable) as error:
        if as_json:
            print_json({"bundle": which, "sound": False, "problem": str(error)})
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json(facts)
        return
    typer.echo(
        f"{facts['model']} is sound: {facts['files']} files match their digests"
        + (f", weights beside the graphs in {', '.join(facts['side_files'])}" if facts["side_files"] else "")
    )
    for run in facts["runs"]:
        cosines = ", ".join(f"{tower} {c:.6f}" for tower, c in run["worst_cosine"].items() if c is not None)
        typer.echo(f"worst cosine to the trainer's vectors ({run['variant']}): {cosines}")


@models.command("push")
def push_model(
    which: Which,
    to: Annotated[str, typer.Argument(metavar="URL", help="The repository: a folder or an fsspec address.")],
    repository: Models = DEFAULT_REPOSITORY,
    as_json: Json = False,
) -> None:
    """Publish a bundle in another repository, under the name and version of its manifest.

    The manifest is written last, so nobody sees half a bundle. Another bundle of the same version is never
    overwritten; pushing the same again sends what is missing there.
    """
    if to.startswith("memory:"):
        raise click.ClickException(f"{to} is in the memory of this command and gone when it ends: name another place")

    def publish() -> tuple[Manifest, int, bool]:
        sent = 0

        def count(more: int) -> None:
            nonlocal sent
            sent += more
            show(more)

        folder = locate(which, repository)
        wanted, target = read_manifest(folder), ModelRepository(to)
        there = target.holds(wanted.name, wanted.version)
        with bytes_on_stderr("pushing") as show:
            return target.push(folder, on_bytes=count), sent, there

    manifest, sent, there = or_fail(publish)
    if as_json:
        facts = {"name": manifest.name, "version": manifest.version, "space_id": manifest.space_id}
        print_json({**facts, "repository": to, "bytes_sent": sent, "already_there": there})
    else:
        already = f" already{f', {sent:,} bytes were missing' if sent else ''}" if there else ""
        typer.echo(
            printable(f"{manifest.name}/{manifest.version} of space {manifest.space_id[:12]} is in {to}{already}")
        )


def locate(which: str, repository: str) -> Path:
    """As `find_bundle`, showing on a terminal how far a copy is.

    Raises:
        BundleError: as `find_bundle`.
    """
    with bytes_on_stderr("copying to the cache") as show:
        return find_bundle(which, repository, on_bytes=show)


def _verify(
    which: str,
    repository: str,
    provider: Literal["auto", "cpu", "cuda", "openvino"],
    only: RunPrecision | None,
) -> dict[str, Any]:
    from twinlens.encoders.encoder import Encoder  # noqa: PLC0415 - only this command runs a model

    folder = locate(which, repository)
    manifest = read_manifest(folder)
    verify_digests(folder, manifest)
    towers = [tower for tower in (manifest.image, manifest.text) if tower is not None]
    wanted: list[RunPrecision] = [only] if only is not None else _precisions(manifest)
    runs: list[dict[str, Any]] = []
    for precision in wanted:
        encoder = Encoder.load(folder, provider=provider, precision=precision, verify=False)
        report = encoder.verify(folder)
        runs.append(
            {
                "precision": dict(encoder.precisions),
                "provider": encoder.provider,
                "variant": encoder.variant,
                "worst_cosine": {"image": report.image, "text": report.text},
            }
        )
        encoder.close()
    return {
        "bundle": which,
        "sound": True,
        "model": f"{manifest.name}/{manifest.version}",
        "schema_version": manifest.schema_version,
        "space_id": manifest.space_id,
        "files": len(manifest.files),
        "side_files": sorted({path for tower in towers for path in weights_beside(tower.files, manifest.files)}),
        "provider": runs[0]["provider"],
        "worst_cosine": runs[0]["worst_cosine"],
        "runs": runs,
    }


def _precisions(manifest: Manifest) -> list[RunPrecision]:
    """Every precision that a tower has a file for, fp32 first."""
    found: dict[RunPrecision, None] = {}
    for tower in (manifest.image, manifest.text):
        if tower is not None:
            found.update(dict.fromkeys(tower.files.by_precision()))
    return list(found)


def _summary(manifest: Manifest) -> dict[str, Any]:
    towers = [name for name, tower in (("image", manifest.image), ("text", manifest.text)) if tower is not None]
    return {
        "space_id": manifest.space_id,
        "dimension": manifest.dimension,
        "towers": towers,
        "precisions": _precisions(manifest),
        "megabytes": sum(entry.size for entry in manifest.files) / 1e6,
        "description": manifest.description,
    }
