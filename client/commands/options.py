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
_BUNDLE = "The encoder bundle: its folder, its address (s3://…/NAME/VERSION), or NAME or NAME/VERSION in ./models. "
Bundle: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bundle", metavar="BUNDLE", help=_BUNDLE + "Goes with --local. Default: what --local was last used with."
    ),
]
BundleAlone: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bundle", metavar="BUNDLE", help=_BUNDLE + "Needs no --local. Default: what --local was last used with."
    ),
]
CollectionName: TypeAlias = Annotated[
    str, typer.Option("--collection", "-c", metavar="NAME", help="The collection's id.")
]
Filter: TypeAlias = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="FILTER",
        help="Only items that match, such as 'tag = \"cat\" AND year >= 2020'; docs/filters.md.",
    ),
]
Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The collection's id.")]
Kind: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--kind",
        metavar="auto|flat|hnsw|ivf_flat|ivf_pq",
        help="What finds its vectors (docs/collections.md). Default: as it is, or for a new one as the server is set.",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
