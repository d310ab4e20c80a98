"""What the commands of this room have in common: options, errors, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import click
import typer

from twinlens.encoders.errors import BundleError, RuntimeUnavailable
from twinlens.printable import printable_json

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
    typer.echo(printable_json(json.dumps(value, ensure_ascii=False, indent=2)))
