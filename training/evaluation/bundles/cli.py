"""`twinlens eval`: what a bundle, or the model of a server, is worth on data of one's own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinlens.client.commands.options import AsJson, Server
from twinlens.encoders.cli import PrecisionOption
from twinlens.encoders.command_options import Models, ProviderOption
from twinlens.encoders.find_bundle import DEFAULT_REPOSITORY
from twinlens.printable import printable
from twinlens.training.command_line import for_people, named_path, say

if TYPE_CHECKING:
    from twinlens.encoders.runtime import Provider, RunPrecision
    from twinlens.training.evaluation.bundles.config import EvalConfig
    from twinlens.training.evaluation.bundles.embedder import Embedder
    from twinlens.training.evaluation.bundles.results import Evaluation


def evaluate(
    bundle: Annotated[
        str | None,
        typer.Argument(
            metavar="[BUNDLE]",
            help="The bundle's folder, its address (s3://…/NAME/VERSION), or NAME or NAME/VERSION in --models; or give "
            "--server.",
        ),
    ] = None,
    captions: Annotated[
        list[Path] | None,
        typer.Option(
            "--captions",
            metavar="FILE|FOLDER",
            parser=named_path,
            help="Retrieval: rows of `image` and `caption`, several captions a picture allowed; or a folder with a "
            "captions.jsonl. Repeatable, as are the next three.",
        ),
    ] = None,
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            "--labels",
            metavar="FILE|FOLDER",
            parser=named_path,
            help="Zero-shot and nearest neighbours: a folder per class or with a labels.jsonl, a list, or shards.",
        ),
    ] = None,
    compositional: Annotated[
        list[Path] | None,
        typer.Option(
            "--compositional",
            metavar="FILE",
            parser=named_path,
            help="Word order and the like: rows of `image`, `caption`, `negative_caption` and maybe `type`; or "
            "SugarCrepe's .json.",
        ),
    ] = None,
    pairs: Annotated[
        list[Path] | None,
        typer.Option(
            "--pairs",
            metavar="FILE",
            parser=named_path,
            help="Rows of `image_0`, `image_1`, `caption_0`, `caption_1` (Winoground), or of `caption`, `image_true`, "
            "`image_false` (NLVR).",
        ),
    ] = None,
    templates: Annotated[
        list[str] | None,
        typer.Option(
            "--templates",
            metavar="NAME|FILE",
            help="Prompts for --labels: photo, plain, simple (7), openai (80), or a file of one a line; repeatable, "
            "each is measured. Default: photo.",
        ),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            "--prompt", metavar="TEXT", help="A prompt, the class in place of {}; repeatable: one set of all."
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="DIR",
            parser=named_path,
            help="Where relative paths of pictures start from. Default: the file that names them.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", parser=named_path, help="Sets in a TOML file; those of options are added."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            parser=named_path,
            help="Write report.html (self-contained) and evaluation.json here.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=2, help="Take at most so many pictures of each set of the options; classes stay all there are."
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=1, help="Neighbours that vote, for --labels. Default: 20.")
    ] = None,
    max_unreadable_share: Annotated[
        float | None,
        typer.Option(
            "--max-unreadable-share",
            min=0.0,
            max=1.0,
            help="Stop where more of a set than this, and more than three items, cannot be used. Default: 0.01.",
        ),
    ] = None,
    server: Server = None,
    provider: ProviderOption = "auto",
    precision: PrecisionOption = "fp32",
    repository: Models = DEFAULT_REPOSITORY,
    as_json: AsJson = False,
) -> None:
    """Measure a model: retrieval, zero-shot, word order, pairs of pictures, and how its space is filled.

    The vectors come from the code that serves: a bundle in this process, or a running server. Prints a table; a tie
    always counts against the model.
    """
    from twinlens.client.commands.output import print_json

    with for_people(), ExitStack() as around:
        from twinlens.training.errors import ConfigError
        from twinlens.training.evaluation.bundles.config import check_there

        sets = _sets(
            config,
            {
                "retrieval": _sections(captions, images, limit),
                "zero_shot": _sections(
                    labels,
                    images,
                    limit,
                    templates=templates or ([] if prompt else None),
                    prompts=prompt,
                    k=k,
                ),
                "compositional": _sections(compositional, images, limit),
                "pairs": _sections(pairs, images, limit),
            },
            max_unreadable_share,
        )
        if sets.is_empty():
            raise ConfigError("nothing to measure on: give --captions, --labels, --compositional, --pairs or --config")
        if (templates or prompt or k) and not labels:
            raise ConfigError("--templates, --prompt and --k go with --labels")
        if out is not None and out.exists() and not out.is_dir():
            raise ConfigError(f"{out} is a file; name a folder for the report")
        check_there(sets)
        if out is not None:
            from twinlens.training.evaluation.bundles.report_files import PAGE_FILE, check_writable
            from twinlens.training.made_folder import made_folder

            around.enter_context(made_folder(out))
            check_writable(out)
        chosen = (
            (bundle, server) if bundle is not None or server is not None else (sets.model.bundle, sets.model.server)
        )
        embedder = around.enter_context(_embedder(*chosen, repository, provider, precision))

        from twinlens.training.evaluation.bundles.measure import evaluate_model

        found = evaluate_model(embedder, sets)
        # Before the report, whose failure should not take the figures along.
        if as_json:
            print_json(found.summary())
        else:
            _tell(found)
        if out is not None:
            from twinlens.training.evaluation.bundles.report import write_report

            write_report(found, out)
            if not as_json:
                typer.echo(printable(str(out / PAGE_FILE)))


def _sections(
    paths: Sequence[Path] | None, images: Path | None, limit: int | None, **more: Any
) -> list[dict[str, Any]]:
    given = {name: value for name, value in {"images": images, "limit": limit, **more}.items() if value is not None}
    return [{"path": path, **given} for path in paths or ()]


def _sets(config: Path | None, options: dict[str, list[dict[str, Any]]], max_share: float | None) -> EvalConfig:
    """The sets of a file, and those of the options after them."""
    from twinlens.training.evaluation.bundles.config import EvalConfig, eval_config, read_eval_config

    of_file = EvalConfig() if config is None else read_eval_config(config)
    of_options = eval_config(options, "options")
    together = {name: (*getattr(of_file, name), *getattr(of_options, name)) for name in options}
    shares = {} if max_share is None else {"max_unreadable_share": max_share}
    return of_file.model_copy(update={**together, **shares})


@contextmanager
def _embedder(
    bundle: str | None, server: str | None, repository: str, provider: Provider, precision: RunPrecision
) -> Iterator[Embedder]:
    """What embeds: a bundle in this process, else a server.

    Raises:
        typer.BadParameter: if both are named, or none.
    """
    if bundle is not None and server is not None:
        raise typer.BadParameter("a bundle and --server exclude each other: the server has its own bundle")
    if bundle is None:
        from twinlens.client.connect import SERVER_VARIABLE, connect
        from twinlens.training.evaluation.bundles.server_embedder import ServerEmbedder

        if server is None and not os.environ.get(SERVER_VARIABLE):
            raise typer.BadParameter(f"name a bundle, or a server with --server HOST:PORT or {SERVER_VARIABLE}")
        if provider != "auto" or precision != "fp32":
            raise typer.BadParameter("--provider and --precision go with a bundle: a server has its own")
        with connect(server, timeout_s=None) as client:
            yield ServerEmbedder(client)
        return
    from twinlens.encoders.cpus import allowed_cpus
    from twinlens.encoders.encoder import Encoder
    from twinlens.encoders.model_commands import locate
    from twinlens.training.evaluation.bundles.bundle_embedder import BundleEmbedder

    # Decoding and the towers run side by side and share the CPUs.
    decoders = max(1, allowed_cpus() // 2)
    threads = max(1, allowed_cpus() - decoders)
    encoder = Encoder.load(locate(bundle, repository), provider=provider, precision=precision, threads=threads)
    try:
        yield BundleEmbedder(encoder, decoders)
    finally:
        encoder.close()


def _tell(found: Evaluation) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from twinlens.client.commands.output import print_table
    from twinlens.training.evaluation.bundles.report import KINDS, remarks, shown

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("set", "measure", "value", "guessing"):
        table.add_column(name, justify="right" if name in {"value", "guessing"} else "left")
    for result in found.sets:
        for line in remarks(result):
            say(f"{result.name}: {line}")
        counts = ", ".join(f"{count:,} {what}" for what, count in result.counts.items())
        of = f"{result.name}, {KINDS[result.kind]}: {counts}"
        for row, measure in enumerate(result.measures):
            table.add_row(Text(printable(of if row == 0 else "")), *(Text(printable(each)) for each in shown(measure)))
        table.add_section()
    print_table(table)
