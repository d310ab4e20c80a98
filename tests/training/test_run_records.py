from __future__ import annotations

import json
from pathlib import Path

import pytest

from twinlens.training.csv_rows import append_row, keep_rows_until, read_columns
from twinlens.training.data.errors import DataError
from twinlens.training.errors import ConfigError
from twinlens.training.run_records import check_same_run, recorded_config, write_records


def test_the_same_configuration_passes_and_another_names_the_key_as_a_person_writes_it(tmp_path: Path) -> None:
    config = {"method": "moco", "train": {"steps": 3}, "method_options": {"queue_size": 8}, "data": {"limit": None}}
    write_records(tmp_path, config=config, data={})
    check_same_run(tmp_path, config)
    with pytest.raises(ConfigError, match=r"is a run with method.queue_size = 8; it cannot go on with 16: leave it"):
        check_same_run(tmp_path, config | {"method_options": {"queue_size": 16}})
    with pytest.raises(ConfigError, match=r"is a run with data.limit = None; it cannot go on with 5"):
        check_same_run(tmp_path, config | {"data": {"limit": 5}})
    with pytest.raises(ConfigError, match=r"is a run of moco; it cannot go on as byol"):
        check_same_run(tmp_path, config | {"method": "byol"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no run: it has no config.json"),
        ("{", "config.json cannot be read"),
        ("[]", "is no configuration"),
    ],
)
def test_a_folder_without_a_readable_configuration_is_no_run(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        recorded_config(tmp_path)


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_records(tmp_path, config={"method": "moco"}, data={"pictures": 3})
    assert recorded_config(tmp_path) == {"method": "moco"}
    assert json.loads((tmp_path / "data.json").read_text()) == {"pictures": 3}


def test_rows_of_later_steps_and_one_cut_short_are_dropped(tmp_path: Path) -> None:
    table = tmp_path / "metrics.csv"
    keep_rows_until(table, 3)
    assert not table.exists()
    for step in (2, 4, 6):
        append_row(table, {"step": step, "loss": 1 / step})
    with table.open("a") as file:
        file.write("8")
    keep_rows_until(table, 4)
    assert read_columns(table) == {"step": [2, 4], "loss": [0.5, 0.25]}
    keep_rows_until(table, 0)
    assert not table.exists()
    append_row(table, {"loss": 1.0})
    with pytest.raises(DataError, match="has no column 'step'"):
        keep_rows_until(table, 4)
