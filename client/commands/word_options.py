"""Options that say which labels in words there are and when none of them fits: of `label` and of `labelsets`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from twinlens.client.errors import TwinlensError
from twinlens.client.label_types import NoneOfThese

Labels: TypeAlias = Annotated[
    str | None, typer.Option("--labels", metavar="A,B,C", help="The labels to choose from, between commas.")
]
LabelsFile: TypeAlias = Annotated[
    Path | None, typer.Option("--labels-file", metavar="FILE", help="The labels, one a line (they may hold commas).")
]
Template: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--template",
        metavar="TEXT",
        help="Prompt around a label, whose place is {}; may be repeated. Default: 'a photo of a {}.'",
    ),
]
MultiLabel: TypeAlias = Annotated[
    bool, typer.Option("--multi-label", help="Judge each label on its own instead of against the others.")
]
MinCosine: TypeAlias = Annotated[
    float | None,
    typer.Option("--min-cosine", min=-1.0, max=1.0, help="A label fits from this cosine on; below, none does."),
]
MinProbability: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--min-probability", min=0.0, max=1.0, help="A label fits from this probability on; below, none does."
    ),
]
Background: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--background",
        metavar="TEXT",
        help="A whole prompt of what else a picture may show ('a blurred photo'); may be repeated. A label fits only "
        "where it is nearer to the picture.",
    ),
]


def none_of_these(
    min_cosine: float | None, min_probability: float | None, background: list[str] | None
) -> NoneOfThese | None:
    """What the options say; None where they say nothing."""
    none = NoneOfThese(min_cosine, min_probability, tuple(background or ()))
    return None if none == NoneOfThese() else none


def words(given: str | None, file: Path | None) -> list[str]:
    """The labels that two options name.

    Raises:
        typer.BadParameter: where there are none.
        TwinlensError: where the file cannot be read.
    """
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except FileNotFoundError:
            raise TwinlensError("NOT_FOUND", f"no such file: {file}") from None
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise TwinlensError("INVALID_ARGUMENT", f"cannot read {file}: {reason}") from None
    else:
        lines = (given or "").split(",")
    labels = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not labels:
        raise typer.BadParameter("no labels given", param_hint="--labels-file" if file is not None else "--labels")
    return labels
