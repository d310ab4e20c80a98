"""The commands `tokens new|list|revoke`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from twinlens.printable import printable
from twinlens.server.access.token import digest, is_name, new_token
from twinlens.server.access.token_file import (
    MAX_RATE,
    StoredToken,
    TokenFileError,
    add_token,
    read_grant,
    read_tokens,
    remove_token,
    write_grant,
)
from twinlens.server.core.caller import Caller

tokens = typer.Typer(no_args_is_help=True, help="Make, list and revoke the tokens that callers of a server show.")

TokenFile = Annotated[
    Path, typer.Option("--file", envvar="TWINLENS_TOKENS", help="The file that the server is started with (--tokens).")
]


@tokens.command("new")
def new(
    name: Annotated[str, typer.Argument(help="What to call it in logs and messages, such as search-page.")],
    file: TokenFile,
    scope: Annotated[
        list[str],
        typer.Option(
            help="read, write (also reads) or admin (also writes); SCOPE:PATTERN for some collections; repeatable."
        ),
    ],
    rate: Annotated[
        float | None, typer.Option(help="Calls a second, and messages of streams. Default: no limit.")
    ] = None,
    days: Annotated[
        int | None, typer.Option(min=1, max=36500, help="How many days it is good. Default: for ever.")
    ] = None,
) -> None:
    """Make a token, print it, and append its hash to a file.

    It is printed this once: nobody can make it of the hash. A server that runs takes it up within a second.
    """
    if not is_name(name):
        raise click.BadParameter(f'{name!r} is not a name for a token: 1 to 63 of a-z, 0-9 and "-"')
    try:
        grants = tuple(read_grant(text) for text in scope)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if rate is not None and not 0 < rate <= MAX_RATE:
        raise click.BadParameter(f"--rate is calls a second, above 0 and at most {MAX_RATE:g}")
    now = datetime.now(UTC)
    token = new_token(name)
    expires = None if days is None else (now + timedelta(days=days)).replace(microsecond=0)
    with _one_line():
        add_token(file, StoredToken(Caller(name, grants), digest(token), rate, expires), now)
    click.echo(token)


@tokens.command("list")
def list_tokens(
    file: TokenFile, json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """List the tokens of a file: their names, scopes, rates and ends, never the tokens."""
    with _one_line():
        stored = read_tokens(file)
    if json_output:
        click.echo(json.dumps([_row(token) for token in stored], indent=2))
        return
    if not stored:
        click.echo(printable(f"no tokens in {file}"))
    for token in stored:
        click.echo(_line(token))


@tokens.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(help="Whose token is good no longer.")],
    file: TokenFile,
) -> None:
    """Take a token out of a file. A server that runs refuses it within a second."""
    with _one_line():
        remove_token(file, name)
    click.echo(f"{name} is revoked")


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except TokenFileError as error:
        raise click.ClickException(str(error)) from None


def _row(token: StoredToken) -> dict[str, Any]:
    return {
        "name": token.caller.name,
        "scopes": [write_grant(grant) for grant in token.caller.grants],
        "rate": token.rate_per_s,
        "expires": None if token.expires is None else token.expires.isoformat(),
    }


def _line(token: StoredToken) -> str:
    words = [token.caller.name, " ".join(map(write_grant, token.caller.grants))]
    if token.rate_per_s is not None:
        words.append(f"{token.rate_per_s:g} calls/s")
    if token.expires is not None:
        words.append(f"{'expired' if token.expires <= datetime.now(UTC) else 'until'} {token.expires.isoformat()}")
    return "  ".join(words)
