"""A folder that is made for a job, and goes again where nothing comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from twinlens.training.errors import ConfigError


@contextmanager
def made_folder(out: Path) -> Iterator[None]:
    """Makes a folder; where nothing comes of it, it goes again, with those above it that were made.

    Raises:
        ConfigError: if it cannot be made.
    """
    missing = [each for each in (out, *out.parents) if not each.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{out} cannot be made: {error.strerror or error}") from None
    try:
        yield
    except BaseException:
        with suppress(OSError):  # something lies in it
            for each in missing:
                each.rmdir()
        raise
