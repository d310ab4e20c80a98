"""What a run would take, as a file: the method's recipe, the user's file and single settings, one over the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twinlens.training.augment.ablation import Ablation
from twinlens.training.config import PATHS, read_config
from twinlens.training.config_layers import relative_to
from twinlens.training.image_config import PATHS as IMAGE_PATHS
from twinlens.training.image_config import read_image_config
from twinlens.training.toml_text import toml_text

_NO_PICTURES = Path("none named")


def shown_image_config(
    method: str,
    path: Path | None,
    *,
    pictures: Path | None,
    settings: Sequence[str],
    ablate: Ablation | None,
) -> str:
    """The TOML of a run on pictures alone; it gives the same run when it is given back. Pictures need not be named.

    Raises:
        ConfigError: as `read_image_config` does.
    """
    config = read_image_config(method, path, pictures=pictures, settings=settings, ablate=ablate, instead=_NO_PICTURES)
    content = config.model_dump(mode="json", exclude={"method"})
    content["method"] = content.pop("method_options")
    if config.data.path == _NO_PICTURES:
        content["data"]["path"] = None
    return toml_text(_with_whole_paths(content, IMAGE_PATHS))


def shown_config(path: Path, settings: Sequence[str]) -> str:
    """The same of a run on captions.

    Raises:
        ConfigError: as `read_config` does.
    """
    return toml_text(_with_whole_paths(read_config(path, settings).model_dump(mode="json"), PATHS))


def _with_whole_paths(content: dict[str, Any], keys: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The text may be put into a file anywhere, and paths in a file are relative to it."""
    return relative_to(content, Path.cwd(), keys)
