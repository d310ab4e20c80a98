"""Sources of pictures for tests, and what was read of them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from twinlens.training.data.picture_set import PictureSet
from twinlens.training.data.picture_sources import load_pictures


def load(path: Path, **changes: object) -> PictureSet:
    """At 16 pixels."""
    return load_pictures(path, **({"side": 16, "smallest": 16} | changes))  # type: ignore[arg-type]


def told(pictures: PictureSet) -> list[tuple[str, str | None]]:
    """Name and class of each."""
    classes = (*pictures.classes, None)
    return [(name, classes[label]) for name, label in zip(pictures.names, pictures.labels.tolist(), strict=True)]


def write_shard(path: Path, members: Mapping[str, bytes]) -> Path:
    """A tar file of what is named."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path
