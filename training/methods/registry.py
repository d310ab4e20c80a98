"""The methods on pictures alone, by the name a person gives them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from twinlens.training.errors import ConfigError
from twinlens.training.pull.near_names import perhaps

if TYPE_CHECKING:
    from twinlens.training.methods.image_method import ImageMethod

IMAGE_METHODS: Mapping[str, str] = {
    "simclr": "SimCLR",
    "moco": "MoCo",
    "byol": "BYOL",
    "swav": "SwAV",
    "dino": "DINO",
    "simsiam": "SimSiam",
    "barlow_twins": "BarlowTwins",
    "vicreg": "VICReg",
    "mae": "MAE",
    "colorization": "Colorization",
    "jigsaw": "Jigsaw",
    "autoencoder": "Autoencoder",
    "supervised": "Supervised",
    "random": "Random",
}


def check_method(name: str) -> None:
    """Refuses a name that no method has; it loads none, which takes seconds.

    Raises:
        ConfigError: if there is no such method.
    """
    if name not in IMAGE_METHODS:
        raise ConfigError(f"there is no method {name!r}{perhaps(name, IMAGE_METHODS)} (see `twinlens train --help`)")


def image_method(name: str) -> type[ImageMethod]:
    """The class in `training/methods/NAME.py`.

    Raises:
        ConfigError: if there is no such method.
    """
    check_method(name)
    found: type[ImageMethod] = getattr(
        importlib.import_module(f"twinlens.training.methods.{name}"), IMAGE_METHODS[name]
    )
    return found
