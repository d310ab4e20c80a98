"""What `twinlens train` refuses by its arguments alone: before torch is loaded, which takes seconds."""

from __future__ import annotations

from pathlib import Path

import typer

from twinlens.training.augment.ablation import Ablation
from twinlens.training.data.pictures_there import check_pictures_there
from twinlens.training.errors import ConfigError
from twinlens.training.methods.registry import check_method


def check_arguments(
    method: str, config: Path | None, images: Path | None, ablate: Ablation | None, *, needs_file: bool
) -> None:
    """Refuses unknown methods, what is not for this one, and pictures that are not there.

    Args:
        method: Its name.
        config: The user's file.
        images: The pictures that are named beside it.
        ablate: What is kept of the augmentation.
        needs_file: Whether clip has no other place to take its configuration from.

    Raises:
        ConfigError: if there is no such method.
        DataError: if there are no such pictures.
        typer.BadParameter: if an option is for other methods, or clip has no file.
    """
    if method.endswith(".toml"):
        raise ConfigError(f"name the method first: twinlens train clip {method}")
    if method == "clip":
        if images is not None or ablate is not None:
            raise typer.BadParameter(
                "--images and --ablate are for methods on pictures alone; clip's file names its data"
            )
        if config is None and needs_file:
            raise typer.BadParameter("clip takes a file (an example is docs/examples/clip.toml)")
        return
    check_method(method)
    if images is not None:
        check_pictures_there(images)
