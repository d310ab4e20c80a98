"""Whether there is anything at all where pictures are said to be; told before torch is loaded, which takes seconds."""

from __future__ import annotations

import glob
from pathlib import Path


def check_pictures_there(path: Path) -> None:
    """Refuses a path that names nothing, neither itself nor as a pattern.

    Raises:
        DataError: saying what can be named.
    """
    if path.exists() or glob.glob(str(path)):  # noqa: PTH207 - the pattern is a whole path
        return
    from twinlens.training.data.picture_sources import list_pictures  # noqa: PLC0415 - has the words for it

    list_pictures(path)
