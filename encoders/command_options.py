"""What the commands of this room have in common: options, errors, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar

import click
import typer

from twinlens.encoders.errors import BundleError, RuntimeUnavailable

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Models = Annotated[str, typer.Option("--models", help="The model repository: a folder or an fsspec address.")]
ProviderOption = Annotated[
    Literal["auto", "cpu", "cuda", "openvino"],
    typer.Option(help="Where the model runs; auto takes CUDA where it is usable and onnxruntime's CPU otherwise."),
]

Result = TypeVar("Result")


def or_fail(action: Callable[[], Result]) -> Result:
    """The result, or a command that ends with one line on what is wrong with the bundle or the machine."""
    try:
        return action()
    except (BundleError, RuntimeUnavailable) as error:
        raise click.ClickException(str(error)) from error


def print_json(value: Any) -> None:
    """Prints for programs."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


@contextmanager
def bytes_on_terminal(what: str) -> Iterator[Callable[[int], None]]:
    """Shows how much was copied and how fast, from the first byte on; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only terminals pay for it
    from rich.progress import DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    with Progress(
        TextColumn("{task.description}"),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=None, visible=False)
        yield lambda count: bar.update(task, advance=count, visible=True)
