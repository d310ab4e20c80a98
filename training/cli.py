"""The commands of this room. Heavy imports happen inside them, so `twinlens --help` stays quick."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinlens.client.commands.options import AsJson, Bundle, Local, Server
from twinlens.printable import printable
from twinlens.training.augment.ablation import Ablation
from twinlens.training.command_line import for_people, named_path, say
from twinlens.training.errors import ConfigError
from twinlens.training.export.cli import export, pull, starter
from twinlens.training.methods.registry import IMAGE_METHODS
from twinlens.training.ranks import launched_ranks
from twinlens.training.run_folder import check_run_folder
from twinlens.training.train_arguments import check_arguments

if TYPE_CHECKING:
    from twinlens.training.clip_result import TrainResult
    from twinlens.training.image_result import ImageTrainResult

__all__ = ["demo", "demo_loop", "export", "mine", "pull", "starter", "train"]


def train(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD",
            help="clip, or a method on pictures alone: " + ", ".join(IMAGE_METHODS) + ".",
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE.TOML]", help="What to train on what; the method's recipe holds the defaults."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="The run folder: new or empty, or the one to go on in.", show_default=False
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="PATH",
            parser=named_path,
            help="Pictures to train on: a folder, a list, or shards; over the file's.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="One value over the file; may be given again."),
    ] = None,
    ablate: Annotated[
        Ablation | None,
        typer.Option("--ablate", help="Keep only this of the augmentation, as the papers' ablations do."),
    ] = None,
    show_config: Annotated[
        bool,
        typer.Option(
            "--show-config", help="Train nothing: print the whole configuration as a file, with all defaults."
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the interrupted run in --out; its own configuration is taken."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train an encoder: a dual encoder on captions (clip), or an image encoder on pictures alone.

    Writes a run folder with a checkpoint, which `twinlens export` turns into a bundle.
    clip needs a file, which names its data (docs/examples has some); --images and --ablate are for the other methods.
    `twinlens train METHOD --show-config` lists every setting; the reference tells what each means.
    """
    from twinlens.client.commands.output import print_json

    with for_people():
        check_arguments(method, config, images, ablate, needs_file=show_config or not resume)
        if show_config:
            typer.echo(_shown(method, config, images, settings or (), ablate), nl=False)
            return
        if out is None:
            raise ConfigError("name the run folder with --out")
        if launched_ranks().is_first:  # the others may come when it has begun to write
            check_run_folder(out, resume=resume)
        result: TrainResult | ImageTrainResult
        if method == "clip":
            result = _train_clip(config, out, settings or (), resume=resume)
        else:
            result = _train_images(method, config, out, images, settings or (), ablate, resume=resume)
    if not launched_ranks().is_first:
        return
    if as_json:
        print_json(result.summary())
        return
    for line in result.warnings():
        say(line)
    typer.echo(printable(f"{result.checkpoint}: {result.told()}"))


def _train_clip(config: Path | None, out: Path, settings: Sequence[str], *, resume: bool) -> TrainResult:
    from twinlens.training.config import read_config
    from twinlens.training.data.pairs_there import check_pairs_there

    settings_of_run = None if config is None else read_config(config, settings)
    if settings_of_run is not None:
        check_pairs_there(settings_of_run.data)
    from twinlens.training.train import config_of_run

    if settings_of_run is None:
        settings_of_run = config_of_run(out, settings)
    from contextlib import nullcontext

    from twinlens.training.progress import lines_or_bar, silent_report
    from twinlens.training.train import train as run

    steps, first = settings_of_run.train.steps, launched_ranks().is_first
    with lines_or_bar("training", steps) if first else nullcontext(silent_report) as progress:
        return run(settings_of_run, out, progress, resume=resume, say=say)


def _train_images(
    method: str,
    config: Path | None,
    out: Path,
    images: Path | None,
    settings: Sequence[str],
    ablate: Ablation | None,
    *,
    resume: bool,
) -> ImageTrainResult:
    from twinlens.training.image_config import read_image_config

    settings_of_run = read_image_config(
        method, config, pictures=images, settings=settings, ablate=ablate, run=out if resume else None
    )
    from twinlens.training.progress import lines_or_bar
    from twinlens.training.train_images import train_images

    return train_images(
        settings_of_run, out, lambda steps: lines_or_bar(f"training {method}", steps), resume=resume, say=say
    )


def _shown(
    method: str, config: Path | None, images: Path | None, settings: Sequence[str], ablate: Ablation | None
) -> str:
    from twinlens.training.show_config import shown_config, shown_image_config

    if method != "clip":
        return shown_image_config(method, config, pictures=images, settings=settings, ablate=ablate)
    assert config is not None  # noqa: S101 - checked
    return shown_config(config, settings)


def mine(
    collection: Annotated[str, typer.Argument(metavar="COLLECTION", help="Its items carry captions.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE.PARQUET", help="The manifest to write.")],
    server: Server = None,
    local: Local = None,
    bundle: Bundle = None,
    kind: Annotated[
        str, typer.Option("--kind", help="Wrong captions (text), wrong pictures (image), or both.")
    ] = "both",
    top_k: Annotated[int, typer.Option("--top-k", min=1, max=1000, help="Candidates for each caption.")] = 50,
    per_anchor: Annotated[int, typer.Option(min=1, help="Negatives taken for each caption and kind.")] = 5,
    margin: Annotated[
        float, typer.Option(help="A negative scores at least this much below the caption's own; may be negative.")
    ] = 0.0,
    relative_margin: Annotated[
        float | None, typer.Option(help="A negative scores at most (1 - this) times the caption's own.")
    ] = None,
    rank_min: Annotated[int, typer.Option(min=0, help="Skip so many of the nearest.")] = 0,
    rank_max: Annotated[int | None, typer.Option(min=1, help="Take none behind this rank.")] = None,
    min_score: Annotated[float | None, typer.Option(help="Take none below this cosine.")] = None,
    max_score: Annotated[float | None, typer.Option(help="Take none above this cosine.")] = None,
    near_duplicate: Annotated[
        float, typer.Option(min=-1, max=2, help="Pictures at least this alike count as equal; above 1: never.")
    ] = 0.99,
    group_key: Annotated[
        str | None, typer.Option(help="Items with equal metadata under this key are right for each other.")
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Take any that pass instead of the nearest.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the random choice.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Mine hard negatives: what the index finds near a caption and is not right for it."""
    from twinlens.client.connect import connect
    from twinlens.training.mining.command import MineRequest, check_out, run_mine

    with for_people():
        check_out(out)
        request = MineRequest.of(
            collection,
            kind=kind,
            top_k=top_k,
            per_anchor=per_anchor,
            margin=margin,
            relative_margin=relative_margin,
            rank_min=rank_min,
            rank_max=rank_max,
            min_score=min_score,
            max_score=max_score,
            near_duplicate=near_duplicate,
            group_key=group_key,
            random=random,
            seed=seed,
        )
        with connect(server, local, bundle) as client:
            run_mine(client, request, out, as_json=as_json)


def demo_loop(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where everything is left; replaced if it is an earlier run's.")
    ] = Path("demo-loop-out"),
    steps: Annotated[int | None, typer.Option(min=20, help="Training steps before and after mining.")] = None,
    scenes: Annotated[int | None, typer.Option(min=256, help="Training scenes.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of scenes and training.")] = 0,
) -> None:
    """Walk the whole loop once on drawn scenes: train, export, serve, search, mine, train on, export, re-index."""
    from twinlens.training.demo.loop import LoopScript, run_loop

    with for_people():
        run_loop(LoopScript.of(steps=steps, scenes=scenes, seed=seed), out)


def demo(
    photos: Annotated[
        Path | None, typer.Argument(help="A folder of your own photos. Default: those that come with scikit-image.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the bundle, the collection and the contact sheet go.")] = Path(
        "demo-out"
    ),
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, max=20, help="Hits a query.")] = 3,
    limit: Annotated[int, typer.Option(min=1, help="Take at most this many of your photos.")] = 1000,
) -> None:
    """Search and label real photos, from nothing.

    Builds the starter encoder, starts a real server on loopback, stores the photos in a collection, searches by text
    and by picture, labels zero-shot, prints the results as tables and stops the server.
    """
    from rich.console import Console

    from twinlens.training.demo.photos import folder_script, run_demo, shipped_script

    with for_people():
        script = shipped_script() if photos is None else folder_script(photos, limit)
        out.mkdir(parents=True, exist_ok=True)
        run_demo(script, out, Console(highlight=False), top_k=top_k)
