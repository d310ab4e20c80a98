"""Files of label sets that say what none can say, or nothing."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
from pathlib import Path

import numpy as np
import pytest

from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.label_set_files import LabelSet, LabelSetFiles
from twinlens.server.core.labels import LabelVectors

COLOURS = LabelSet("colours", ("red", "blue"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": "red"},
        {"labels": []},
        {"labels": ["red", 5]},
        {"labels": ["\ud800"]},
        {"templates": None},
        {"none": {"min_cosine": None, "min_probability": None, "background": [1]}},
        {"none": {"min_cosine": "high", "min_probability": None, "background": []}},
        {"created_s": math.inf},
        {"updated_s": -1.0},
        {"format": 2},
    ],
)
def test_a_label_set_that_says_what_none_can_say_is_damaged(tmp_path: Path, wrong: dict[str, object]) -> None:
    LabelSetFiles(tmp_path).write(COLOURS, {})
    file = tmp_path / "colours.json"
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **wrong}))
    with pytest.raises(ServiceError, match="put it again") as caught:
        LabelSetFiles(tmp_path).read("colours")
    assert caught.value.code is Code.DATA_LOSS


def test_after_a_write_that_failed_what_is_on_disk_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = LabelSetFiles(tmp_path)
    files.write(COLOURS, {})

    def failing(path: Path, content: str) -> None:
        path.write_text(content, encoding="utf-8")
        raise OSError(errno.EIO, "the folder cannot be synced")

    with monkeypatch.context() as patched:
        patched.setattr("twinlens.server.core.label_set_files.replace_file", failing)
        with pytest.raises(ServiceError, match="cannot be written"):
            files.write(LabelSet("colours", ("green",)), {})
    assert files.read("colours") == LabelSetFiles(tmp_path).read("colours")


def test_vectors_that_are_damaged_somewhere_are_read_as_they_were_or_not_at_all(tmp_path: Path) -> None:
    files, rng = LabelSetFiles(tmp_path), np.random.default_rng(7)
    kept = LabelVectors(np.eye(2, 4, dtype=np.float32), np.ones(4, dtype=np.float32), np.array([True, False]))
    files.write(COLOURS, {"key": kept})
    (path,) = tmp_path.glob("*.npz")
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        found = files.read_vectors("colours", "key")
        if found is not None:
            for got, expected in zip(dataclasses.astuple(found), dataclasses.astuple(kept), strict=True):
                np.testing.assert_array_equal(got, expected)
