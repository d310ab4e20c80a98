"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Server: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="HOST:PORT", help="A running server. Default: the environment variable TWINLENS_SERVER."
    ),
]
Local: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--local", metavar="DIR", help="Work without a server on this data folder, the same as `twinlens serve --data`."
    ),
]
Bundle: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bundle",
        metavar="DIR|ADDRESS",
        help="The encoder bundle, a folder or an address. Default: what --local was last used with. Without --local "
        "nothing is kept.",
    ),
]
CollectionName: TypeAlias = Annotated[
    str, typer.Option("--collection", "-c", metavar="NAME", help="The collection's id.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
