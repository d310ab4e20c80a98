"""The commands `augment …`. Heavy imports happen inside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from twinlens.printable import printable
from twinlens.training.augment.ablation import Ablation
from twinlens.training.command_line import for_people, named_path, say
from twinlens.training.data.pictures_there import check_pictures_there
from twinlens.training.errors import ConfigError, first_line
from twinlens.training.made_folder import made_folder

if TYPE_CHECKING:
    from twinlens.training.augment.recipe import AugmentRecipe
    from twinlens.training.data.picture_set import PictureSet

augment = typer.Typer(no_args_is_help=True, help="Look at what a method does to pictures before it sees them.")


@augment.callback()
def _group() -> None:
    """Keeps `preview` a command of its own."""


@augment.command()
def preview(
    out: Annotated[Path, typer.Option("--out", metavar="SHEET.PNG", help="The contact sheet to write.")],
    method: Annotated[
        str,
        typer.Argument(metavar="[METHOD|FILE.TOML]", help="Whose recipe; or a file with a section [augment] alone."),
    ] = "simclr",
    config: Annotated[
        Path | None, typer.Argument(metavar="[FILE.TOML]", help="A run's file over the method's recipe, as for train.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="PATH",
            parser=named_path,
            help="Pictures, as for train: a folder, a list, or shards.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="One value over the file, such as augment.size=32."),
    ] = None,
    ablate: Annotated[
        Ablation | None,
        typer.Option("--ablate", help="Keep only this of the augmentation, as the papers' ablations do."),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Picture by picture with torchvision, in place of whole batches.")
    ] = False,
    pictures: Annotated[int, typer.Option(min=1, max=64, help="Rows of the sheet.")] = 6,
    draws: Annotated[int, typer.Option(min=1, max=16, help="How often each picture is augmented.")] = 2,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the run.")] = 0,
) -> None:
    """Write a contact sheet: some pictures, and the views that a method would see of them.

    Also tells what the recipe does at its size, and what it changes for small pictures.
    """
    with for_people(), _room_for(out):
        recipe, found = _read(method, config, images, settings or (), ablate, pictures)
        from twinlens.training.augment.description import describe
        from twinlens.training.augment.preview import contact_sheet
        from twinlens.training.data.picture_set import left_out

        sheet = contact_sheet(recipe, found.pixels_nhwc, draws=draws, seed=seed, mode="exact" if exact else "batched")
        try:
            sheet.save(out)
        except (OSError, ValueError) as error:  # the latter where a sheet is too large for the kind of file
            raise click.ClickException(f"cannot write {out}: {first_line(error)}") from error
    for line in describe(recipe):
        typer.echo(line)
    for line in left_out(found.unreadable):
        say(line)
    typer.echo(printable(f"{out}: {len(found)} picture(s), {sheet.width} x {sheet.height} pixels"))


def _read(
    method: str,
    config: Path | None,
    images: Path | None,
    settings: Sequence[str],
    ablate: Ablation | None,
    limit: int,
) -> tuple[AugmentRecipe, PictureSet]:
    # Files and settings first: to load torch takes seconds.
    if images is not None:
        check_pictures_there(images)
    if not method.endswith(".toml"):
        from twinlens.training.image_config import read_image_config

        run = read_image_config(method, config, pictures=images, settings=settings, ablate=ablate)
        from twinlens.training.image_plan import load

        # A sheet shows what can be shown, however few that is.
        few = run.model_copy(update={"data": run.data.model_copy(update={"limit": limit, "max_unreadable_share": 1.0})})
        return run.augment, load(few, run.data.path)
    if config is not None or settings:
        raise ConfigError(
            "a file alone is the whole recipe: name a method first to lay a file or --set over its recipe"
        )
    if images is None:
        raise ConfigError("name the pictures with --images")
    from twinlens.training.augment.ablation import ablated
    from twinlens.training.augment.recipe_file import read_recipe
    from twinlens.training.data.picture_sources import load_pictures

    recipe = read_recipe(Path(method))
    from twinlens.training.image_plan import stored_side

    side = stored_side(recipe.size)
    found = load_pictures(images, side=side, smallest=recipe.size, limit=limit, max_unreadable_share=1.0)
    return (recipe if ablate is None else ablated(recipe, ablate)), found


@contextmanager
def _room_for(out: Path) -> Iterator[None]:
    """Makes the folder of a sheet, unless it is clear that there can be none."""
    if out.suffix.lower() not in {".png", ".jpg", ".jpeg", ".webp"}:
        raise ConfigError(f"{out} must end in .png, .jpg or .webp")
    if out.is_dir():
        raise ConfigError(f"cannot write {out}: it is a folder")
    with made_folder(out.parent):
        yield
