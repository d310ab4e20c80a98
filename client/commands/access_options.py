"""The options by which every command that takes `--server` shows that server who it is.

They are added to the commands as these are made, and read where a command connects: none is about what a command does.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main

from twinlens.client.access import AccessOptions, current_options


def _options(
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="With --server: file that holds the token to show. Default: the environment variable TWINLENS_TOKEN.",
        ),
    ] = None,
    tls: Annotated[
        bool,
        typer.Option("--tls", help="With --server: encrypt, as any --tls-… does. Default: TWINLENS_TLS=1 and kin."),
    ] = False,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-ca",
            metavar="FILE",
            help="PEM file of the authorities that may sign the server's certificate. Default: TWINLENS_TLS_CA, or the "
            "public ones.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert", metavar="FILE", help="PEM file of a certificate to show. Default: TWINLENS_TLS_CERT."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option("--tls-key", metavar="FILE", help="PEM file of its key. Default: TWINLENS_TLS_KEY."),
    ] = None,
    tls_name: Annotated[
        str | None,
        typer.Option(
            "--tls-name",
            metavar="NAME",
            help="What the server's certificate calls it, where that is not the host of --server. Default: "
            "TWINLENS_TLS_NAME.",
        ),
    ] = None,
) -> None:
    del token_file, tls, tls_ca, tls_cert, tls_key, tls_name


def add_access_options(command: Any) -> Any:
    """Gives the options to a command that takes `--server`, or to all such commands of a group; returns it.

    Commands are Any: Typer has them from click in older versions and from a copy of its own in newer ones.
    """
    for each in getattr(command, "commands", {}).values():
        add_access_options(each)
    if any("--server" in parameter.opts for parameter in command.params):
        _add(command)
    return command


def _add(command: Any) -> None:
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command()(_options)
    made: Any = typer.main.get_command(single)
    names = [parameter.name for parameter in made.params]
    run = command.callback

    @functools.wraps(run)
    def with_access(**values: Any) -> Any:
        chosen = AccessOptions(**{name: values.pop(name) for name in names})
        token = current_options.set(chosen)
        try:
            return run(**values)
        finally:
            current_options.reset(token)

    command.callback = with_access
    command.params = [*command.params, *made.params]
