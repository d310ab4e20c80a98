"""Commands of the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from twinlens.printable import printable
from twinlens.server.token_commands import tokens

if TYPE_CHECKING:
    from twinlens.server.core.reindex import Progress, Unembeddable

__all__ = ["reindex", "serve", "tokens"]

_NAMED = 20  # items of a collection that lack a vector for the same reason


def serve(
    data: Annotated[Path | None, typer.Option(help="Folder that keeps the collections; made if missing.")] = None,
    bundle: Annotated[
        str | None,
        typer.Option(
            help="The bundle's folder, its address (s3://…/NAME/VERSION), or NAME or NAME/VERSION in ./models. "
            "Default: the one DATA was served with."
        ),
    ] = None,
    backups: Annotated[
        str | None, typer.Option(help="Folder or address (s3://…) that keeps backups. Default: none are made.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 picks a free one. Default: 50051.")] = None,
    port_file: Annotated[Path | None, typer.Option(help="File the port is written to once the server serves.")] = None,
    provider: Annotated[str | None, typer.Option(help="auto, cpu, cuda or openvino. Default: auto.")] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="fp32, fp16 or int8 (files of the bundle), bf16 (openvino), or tuned. Default: fp32."),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Measure what is fastest here, serve with it, remember it for --precision tuned."),
    ] = False,
    grace_s: Annotated[
        float | None, typer.Option("--grace", help="Seconds running calls have to finish on SIGTERM. Default: 10.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file of the server's certificate chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key.")] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(help="PEM file of authorities; clients must have a certificate that one of them signed."),
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="File of hashed tokens (docs/security.md); callers must then bring one.")
    ] = None,
    fetch_host: Annotated[
        list[str] | None,
        typer.Option(help="A host that pictures may be fetched from, or *.DOMAIN; repeatable. Default: none."),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port of /metrics for Prometheus; 0 picks a free one. Default: there is none.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. Default: info.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json. Default: text.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings; TWINLENS_… variables and options overrule it.")
    ] = None,
) -> None:
    """Serve embeddings, search and labels over gRPC.

    Before it listens on anything but 127.0.0.1, give it a certificate (--tls-cert, --tls-key) and tokens (--tokens):
    without them whoever reaches the port may read and write everything, and whoever is on the way sees it.
    """
    from twinlens.server.logs import configure_logging
    from twinlens.server.native_threads import bound_native_threads
    from twinlens.server.settings import SettingsError, load_settings

    try:
        settings = load_settings(
            config,
            data=data,
            bundle=bundle,
            backups=backups,
            host=host,
            port=port,
            port_file=port_file,
            provider=provider,
            precision=precision,
            tune=tune or None,
            grace_s=grace_s,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_client_ca=tls_client_ca,
            tokens=tokens,
            fetch_hosts=tuple(fetch_host) if fetch_host else None,
            metrics_port=metrics_port,
            log_level=log_level,
            log_format=log_format,
        )
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    configure_logging(settings.log_level, settings.log_format)
    bound_native_threads(settings)  # before what follows loads NumPy
    from twinlens.server.core.active import StartError
    from twinlens.server.serve import serve as run

    try:
        run(settings)
    except StartError as error:
        raise click.ClickException(str(error)) from None


def reindex(
    local: Annotated[Path, typer.Option(help="Data folder whose collections are moved; must not be served meanwhile.")],
    bundle: Annotated[
        str,
        typer.Option(help="The new bundle's folder, its address (s3://…/NAME/VERSION), or NAME/VERSION in ./models."),
    ],
    drop_old: Annotated[
        bool,
        typer.Option(
            "--drop-old", help="Remove the vectors of other models at the end; there is then no quick way back."
        ),
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Embed every item again with another model, then serve with it from now on.

    Can be interrupted and run again: what is done stays done, and until the end the old model is the active one.
    """
    import json

    from twinlens.server.core.active import StartError, bundle_folder
    from twinlens.server.reindexing import reindex_folder
    from twinlens.server.settings import SettingsError, load_settings

    try:
        settings = load_settings()
        with _progress() as show:
            report = reindex_folder(local, bundle_folder(bundle), settings, show, drop_old=drop_old)
    except (StartError, SettingsError) as error:
        raise click.ClickException(str(error)) from None
    _say_unembeddable(report.unembeddable)
    for name, reason in report.damaged.items():
        click.echo(printable(f"{name}: not moved: {reason}"), err=True)
    if json_output:
        failed = [{"collection": e.collection, "id": e.id, "reason": e.reason} for e in report.unembeddable]
        counts = {"collections": report.collections, "items": report.items, "dropped": report.dropped}
        click.echo(json.dumps({**counts, "unembeddable": failed, "damaged": dict(report.damaged)}))
    else:
        dropped = f"; {report.dropped} older generations dropped" if drop_old else ""
        click.echo(printable(f"{report.items} items of {report.collections} collections moved to {bundle}{dropped}"))


def _say_unembeddable(entries: Sequence[Unembeddable]) -> None:
    """Names items; of many of a collection that failed for one reason the first, and how many there are."""
    times: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        same = (entry.collection, entry.reason)
        times[same] += 1
        if times[same] <= _NAMED:
            click.echo(printable(f"{entry.collection}/{entry.id}: not embedded: {entry.reason}"), err=True)
    for (collection, reason), count in times.items():
        if count > _NAMED:
            click.echo(printable(f"{collection}: {count - _NAMED:,} more not embedded: {reason}"), err=True)


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal, plain lines otherwise; both on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda now: click.echo(f"{now.collection}: {now.done} of {now.total}", err=True)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def show(now: Progress) -> None:
            if now.collection not in tasks:
                tasks[now.collection] = bars.add_task(now.collection, total=now.total)
            bars.update(tasks[now.collection], completed=now.done)

        yield show
