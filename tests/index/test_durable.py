from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from twinlens.index.durable import replace_file


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace_file(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            replace_file(path, "new")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "old")]
