"""Command-line options about variants, shared by `quantize` and by the commands that make bundles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from twinlens.training.command_line import say
from twinlens.training.errors import TrainingRoomError, first_line
from twinlens.training.export.destination import room_beside

if TYPE_CHECKING:
    from twinlens.encoders.manifest import Manifest

Photos = Annotated[
    list[Path] | None,
    typer.Option(
        "--photos",
        metavar="FOLDER",
        help="Some hundred pictures like yours, with a captions.jsonl (rows of image, caption) or not. Repeatable.",
    ),
]
Texts = Annotated[
    Path | None,
    typer.Option("--texts", metavar="FILE", help="Texts like yours: one a line, or JSONL with caption or text."),
]
Labels = Annotated[
    list[Path] | None,
    typer.Option(
        "--labels",
        metavar="FOLDER",
        help="Labelled pictures: a subfolder for each class, or a labels.jsonl (rows of image, label). Repeatable.",
    ),
]
Variants = Annotated[
    str | None,
    typer.Option(
        "--variants",
        metavar="int8,fp16",
        help="Also make these files and keep what passes, as `twinlens quantize` does; judged on --photos.",
    ),
]


@dataclass(frozen=True)
class VariantsAsked:
    """What a command was told about variants."""

    names: str | None
    photos: Sequence[Path] | None
    texts: Path | None
    labels: Sequence[Path] | None


def parse_variants(names: Sequence[str]) -> list[Literal["int8", "fp16"]]:
    """Names of reduced precisions, each also as a list with commas.

    Raises:
        typer.BadParameter: if one is unknown.
    """
    found: list[Literal["int8", "fp16"]] = []
    for name in (part.strip() for given in names for part in given.split(",")):
        if name not in {"int8", "fp16"}:
            raise typer.BadParameter(f"there is no variant {name!r}: int8 and fp16 can be made")
        found.append("int8" if name == "int8" else "fp16")
    return found


def with_variants(
    make: Callable[[Path], Manifest], out: Path, asked: VariantsAsked, *, perhaps_without_images: bool = False
) -> Manifest:
    """Makes a bundle at `out`, with the variants that were asked for and pass.

    Once `make` has done its work the bundle is published, whatever goes wrong with the variants: a warning says what.

    Args:
        make: Publishes the fp32 bundle in the folder it is given.
        out: The bundle's folder.
        asked: Without names, `make` alone is called.
        perhaps_without_images: Whether the model may be one of texts alone, so that no `--photos` is not yet wrong.

    Raises:
        ExportError: before `make` is called, if the folder is in use or the data cannot be enough; and whatever `make`
            raises.
    """
    if asked.names is None:
        return make(out)
    from twinlens.encoders.bundle import read_manifest  # noqa: PLC0415 - heavy, and seldom needed
    from twinlens.encoders.errors import BundleError  # noqa: PLC0415
    from twinlens.encoders.manifest import MANIFEST_NAME  # noqa: PLC0415
    from twinlens.encoders.progress import progress_on_stderr  # noqa: PLC0415
    from twinlens.encoders.publish import copy_bundle  # noqa: PLC0415
    from twinlens.training.export.variants.add import add_variants, refuse_used  # noqa: PLC0415
    from twinlens.training.export.variants.calibration import read_calibration  # noqa: PLC0415
    from twinlens.training.export.variants.enough import refuse_too_little  # noqa: PLC0415

    wanted = parse_variants([asked.names])
    refuse_used(out)
    data = read_calibration(asked.photos or (), asked.texts, asked.labels or ())
    refuse_too_little(data, image=bool(asked.photos) or not perhaps_without_images)
    with room_beside(out) as folder:
        plain = folder / out.name
        make(plain)
        try:
            report = add_variants(plain, out, wanted, data, say=say, watch=progress_on_stderr)
            for outcome in report.outcomes:
                say(outcome.line())
        except Exception as error:
            expected = isinstance(error, (TrainingRoomError, BundleError, OSError))
            kind = "" if expected else f"{type(error).__name__}: "
            told = f"no variants, the bundle has its fp32 files only: {kind}{first_line(error)}"
            say(f"warning: {told}")
        else:
            if report.manifest is not None:
                return report.manifest
            say("warning: no variant passed, the bundle has its fp32 files only")
        return copy_bundle(read_manifest(plain), (plain / MANIFEST_NAME).read_bytes(), plain, out)
