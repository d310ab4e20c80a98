"""Files that appear only once they are complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twinlens.client.errors import TwinlensError


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to; it takes that name, complete and on disk, when the block ends without an error.

    Raises:
        TwinlensError: where the file cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise TwinlensError("PERMISSION_DENIED", f"cannot write to {path.parent}: {error.strerror}") from None
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.chmod(0o666 & ~_umask())  # mkstemp's files are for their owner alone
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise TwinlensError("INTERNAL", f"cannot write {path}: {error.strerror or error}") from None
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
