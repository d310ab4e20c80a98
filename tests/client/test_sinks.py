"""Files of labels, read back."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from twinlens.client import Classification, ItemError, LabelScore, TwinlensError
from twinlens.client.sinks import COLUMNS, LabelRow, label_row, open_sink
from twinlens.client.sources import FoundImage

GOOD = Classification((LabelScore("a, \"b\" 'é'", 0.25, 0.75), LabelScore("c", 0.1, 0.25)))
BAD = Classification((), ItemError("INVALID_IMAGE", "not a picture"))
ROWS = [
    label_row(FoundImage(Path("in/x.png"), "x.png"), GOOD),
    label_row(FoundImage(Path("in/y\n.png"), "y\n.png"), BAD),
]
FORMS = [".jsonl", ".csv", ".parquet"]


def read_back(path: Path) -> list[dict[str, Any]]:
    """The rows of any form as those of .jsonl; empty CSV cells as None, but for the error."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()  # type: ignore[no-any-return]
    with path.open(encoding="utf-8", newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        row["labels"] = json.loads(row["labels"] or "[]")
        for name in ("probability", "cosine"):
            row[name] = float(row[name]) if row[name] else None
        row["label"] = row["label"] or None
    return rows


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_rows(tmp_path: Path, form: str) -> None:
    out = tmp_path / f"labels{form}"
    with open_sink(out) as sink:
        sink.write(ROWS[:1])
        sink.write(ROWS[1:])
    good, bad = read_back(out)
    assert tuple(good) == COLUMNS
    assert (good["id"], good["path"], good["label"], good["error"]) == ("x.png", "in/x.png", "a, \"b\" 'é'", "")
    assert (good["probability"], good["cosine"]) == (0.75, 0.25)
    assert [each["label"] for each in good["labels"]] == ["a, \"b\" 'é'", "c"]
    assert good["labels"][1]["probability"] == 0.25
    assert (bad["id"], bad["label"], bad["probability"], bad["labels"]) == ("y\n.png", None, None, [])
    assert bad["error"] == "not a picture"


@pytest.mark.parametrize("form", FORMS)
def test_a_file_appears_only_when_it_is_complete(tmp_path: Path, form: str) -> None:
    out = tmp_path / f"labels{form}"
    out.write_text("what was there before")
    fails_half_way = open_sink(out)
    sink = fails_half_way.__enter__()
    sink.write(ROWS)
    assert out.read_text() == "what was there before"
    assert not fails_half_way.__exit__(KeyError, KeyError(), None)
    assert out.read_text() == "what was there before"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_no_rows_can_be_read(tmp_path: Path, form: str) -> None:
    with open_sink(tmp_path / f"labels{form}"):
        pass
    assert read_back(tmp_path / f"labels{form}") == []


@pytest.mark.parametrize("form", FORMS)
def test_a_disk_that_is_full_is_one_line_with_the_files_name(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / f"labels{form}"
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(TwinlensError, match=rf"^cannot write .*labels\{form}: No space left"), open_sink(out):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_parquet_file_is_written_in_groups(tmp_path: Path) -> None:
    row = LabelRow("i", "p", "a", 0.5, 0.5, ())
    with open_sink(tmp_path / "labels.parquet") as sink:
        for _ in range(5):
            sink.write([row] * 2000)
    file = pq.ParquetFile(tmp_path / "labels.parquet")
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (10_000, 2)


def test_a_file_has_the_rights_that_files_usually_get(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with open_sink(tmp_path / "labels.csv"):
        pass
    assert stat.S_IMODE((tmp_path / "labels.csv").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


@pytest.mark.parametrize("name", ["labels.xlsx", "labels", "missing/labels.csv", "folder.csv"])
def test_what_cannot_be_written_is_refused_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TwinlensError), open_sink(tmp_path / name):
        pytest.fail("the block must not begin")
